//! The outputs of a task: routes records over the channels of each edge, and sends control elements
//! on all of them, behind every record that was routed before.

use std::collections::VecDeque;

use crate::element::{Barrier, Batch, Element};
use crate::id::OutletIndex;
use crate::operator::route::Route;
use crate::task::TaskOutput;

/// The edges that leave a task, each with its channels in a row.
#[derive(Clone)]
pub(crate) struct Outlet {
    edges: Vec<OutletEdge>,
    channels: u32,
}

#[derive(Clone)]
struct OutletEdge {
    route: Box<dyn Route>,
    first: u32,
    /// Barriers may overtake on its channels.
    may_overtake: bool,
}

impl Outlet {
    /// Each edge with the number of its channels and whether barriers may overtake there, in order.
    pub(crate) fn new(edges: Vec<(Box<dyn Route>, usize, bool)>) -> Self {
        let mut outlet = Self { edges: Vec::with_capacity(edges.len()), channels: 0 };
        for (route, channels, may_overtake) in edges {
            outlet.edges.push(OutletEdge { route, first: outlet.channels, may_overtake });
            outlet.channels += channels as u32;
        }
        outlet
    }

    /// The channels on which barriers may overtake.
    pub(crate) fn overtaking(&self) -> impl Iterator<Item = OutletIndex> + '_ {
        let ends = self.edges.iter().skip(1).map(|edge| edge.first).chain([self.channels]);
        let edges = self.edges.iter().zip(ends).filter(|(edge, _)| edge.may_overtake);
        edges.flat_map(|(edge, end)| (edge.first..end).map(OutletIndex::new))
    }

    /// Routes records over every edge. Records without an edge are dropped: nobody asked for them.
    pub(crate) fn send(&mut self, records: Batch, outputs: &mut VecDeque<TaskOutput>) {
        let Some((last, others)) = self.edges.split_last_mut() else { return };
        for edge in others {
            edge.route.route(records.clone(), &mut sender(edge.first, outputs));
        }
        last.route.route(records, &mut sender(last.first, outputs));
    }

    /// Sends what routes have kept back.
    pub(crate) fn flush(&mut self, outputs: &mut VecDeque<TaskOutput>) {
        for edge in &mut self.edges {
            edge.route.flush(&mut sender(edge.first, outputs));
        }
    }

    /// Sends a barrier on every channel, behind all records that the operators have emitted. It
    /// overtakes those that have not left the task only where it may.
    pub(crate) fn send_barrier(&mut self, barrier: Barrier, outputs: &mut VecDeque<TaskOutput>) {
        self.broadcast(Element::Barrier(Barrier { overtakes: false, ..barrier }), outputs);
        if barrier.overtakes {
            let first = outputs.len() - self.channels as usize;
            for outlet in self.overtaking() {
                outputs[first + outlet.index()] =
                    TaskOutput::Send(outlet, Element::Barrier(barrier));
            }
        }
    }

    /// Sends a control element on every channel, behind all records.
    pub(crate) fn broadcast(&mut self, element: Element, outputs: &mut VecDeque<TaskOutput>) {
        self.flush(outputs);
        let all = (0..self.channels).map(OutletIndex::new);
        outputs.extend(all.map(|outlet| TaskOutput::Send(outlet, element.clone())));
    }
}

fn sender(first: u32, outputs: &mut VecDeque<TaskOutput>) -> impl FnMut(usize, Batch) + '_ {
    move |channel, records| {
        let outlet = OutletIndex::new(first + channel as u32);
        outputs.push_back(TaskOutput::Send(outlet, Element::Batch(records)));
    }
}
