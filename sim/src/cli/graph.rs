//! A job's graph as people and their tools read it.

use std::fmt::Write;

use cofferdam::id::VertexId;
use cofferdam::job::Job;
use serde::Serialize;

use crate::cli::output::Paint;

/// The graph.
#[derive(Serialize)]
pub(crate) struct Graph {
    vertices: Vec<Vertex>,
    edges: Vec<Edge>,
    tasks: usize,
}

/// Chained operators, which run together in each subtask.
#[derive(Serialize)]
struct Vertex {
    operators: Vec<String>,
    parallelism: usize,
    source: bool,
    /// What its sink promises, if it ends in one.
    sink: Option<String>,
}

#[derive(Serialize)]
struct Edge {
    from: usize,
    to: usize,
    partition: String,
}

impl Graph {
    pub(crate) fn of(job: &Job) -> Self {
        let graph = job.graph();
        let vertices = graph.vertices().iter().enumerate().map(|(id, vertex)| Vertex {
            operators: vertex.name.split(" -> ").map(str::to_owned).collect(),
            parallelism: vertex.parallelism,
            source: vertex.is_source,
            sink: job.sink(VertexId::new(id as u32)).map(|(_, sink)| sink.contract().to_string()),
        });
        let edges = graph.edges().iter().map(|edge| Edge {
            from: edge.from.index(),
            to: edge.to.index(),
            partition: edge.partition.to_string(),
        });
        Self { vertices: vertices.collect(), edges: edges.collect(), tasks: graph.task_count() }
    }

    fn edges_from(&self, vertex: usize) -> impl Iterator<Item = &Edge> {
        self.edges.iter().filter(move |edge| edge.from == vertex)
    }
}

impl Vertex {
    fn chain(&self) -> String {
        self.operators.join(" → ")
    }

    /// What stands beside the name: parallelism, and what kind of end it is.
    fn note(&self) -> String {
        let sink = self.sink.as_ref().map(|contract| format!(", {contract} sink"));
        let source = if self.source { ", source" } else { "" };
        format!("×{}{source}{}", self.parallelism, sink.unwrap_or_default())
    }
}

/// Indented lines: each vertex, and under it where its records go.
pub(crate) fn text(graph: &Graph, paint: Paint) -> String {
    let mut text = String::new();
    for (id, vertex) in graph.vertices.iter().enumerate() {
        let note = paint.dim(&vertex.note());
        line(&mut text, format_args!("[{id}] {}  {note}", paint.bold(&vertex.chain())));
        for edge in graph.edges_from(id) {
            let Edge { to, partition, .. } = edge;
            line(&mut text, format_args!("     └─ {partition} → [{to}]"));
        }
    }
    let tasks = format!("{} tasks; operators joined by → run chained in one", graph.tasks);
    text + &paint.dim(&tasks)
}

/// Graphviz.
pub(crate) fn dot(name: &str, graph: &Graph) -> String {
    let mut text = String::new();
    line(&mut text, format_args!("digraph \"{name}\" {{"));
    line(&mut text, format_args!("  rankdir=LR;"));
    line(&mut text, format_args!("  node [shape=box, style=rounded, fontname=\"sans-serif\"];"));
    for (id, vertex) in graph.vertices.iter().enumerate() {
        let (chain, note) = (vertex.chain(), vertex.note());
        line(&mut text, format_args!("  v{id} [label=\"{chain}\\n{note}\"];"));
    }
    for Edge { from, to, partition } in &graph.edges {
        line(&mut text, format_args!("  v{from} -> v{to} [label=\"{partition}\"];"));
    }
    text + "}"
}

/// Mermaid.
pub(crate) fn mermaid(graph: &Graph) -> String {
    let mut text = String::from("flowchart LR");
    for (id, vertex) in graph.vertices.iter().enumerate() {
        let (chain, note) = (vertex.chain(), vertex.note());
        text.push_str(&format!("\n  v{id}[\"{chain}<br/>{note}\"]"));
    }
    for Edge { from, to, partition } in &graph.edges {
        text.push_str(&format!("\n  v{from} -->|{partition}| v{to}"));
    }
    text
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    writeln!(text, "{arguments}").expect("a String takes every text");
}
