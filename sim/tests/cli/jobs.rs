//! `jobs`.

use crate::support::cofferdam;

#[test]
fn jobs_are_listed_and_drawn() {
    let listed = cofferdam(&["jobs", "--format", "json"]).exits(0);
    let names: Vec<_> =
        listed.rows().iter().filter_map(|row| row["job"].as_str().map(str::to_owned)).collect();
    assert!(names.contains(&"wordcount".to_owned()) && names.contains(&"random-graph".to_owned()));
    assert_eq!(listed.summary()["schema"], "cofferdam.jobs/1");
    let listed = cofferdam(&["jobs"]).exits(0).out;
    assert!(listed.contains("--within 10m") && !listed.contains('\x1b'), "{listed}");
    let graph = cofferdam(&["jobs", "wordcount", "--parallelism", "3"]).exits(0).out;
    assert!(
        graph.contains("lines → split") && graph.contains("hash") && graph.contains("×3"),
        "{graph}"
    );
    assert!(cofferdam(&["jobs", "wordcount", "--dot"]).exits(0).out.starts_with("digraph"));
    assert!(cofferdam(&["jobs", "smoke-alarm", "--mermaid"]).exits(0).out.starts_with("flowchart"));
    let graph = cofferdam(&["jobs", "wordcount", "--format", "json"]).exits(0).summary();
    assert_eq!(graph["edges"][0]["partition"], "hash");
    cofferdam(&["jobs", "no-such-job"]).refuses(&["no-such-job", "wordcount"]);
    cofferdam(&["jobs", "--dot"]).exits(2);
}
