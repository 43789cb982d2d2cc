//! The order of a list of GPUs.

use std::cmp::Ordering;

use gpuvitals_core::history::{Fleet, GpuState};
use gpuvitals_core::{IdentityColumn, MetricId};

use super::judged::JudgedGpu;
use crate::condition;
use crate::error::ApiError;
use crate::parameter;

const FIELDS: [(&str, Field); 11] = [
    ("id", Field::Id),
    ("name", Field::Name),
    ("hostname", Field::Hostname),
    ("index", Field::Index),
    ("model", Field::Model),
    ("vendor", Field::Vendor),
    ("driver_version", Field::Driver),
    ("state", Field::State),
    ("judgement", Field::Judgement),
    ("last_seen", Field::LastSeen),
    ("memory_mb", Field::Memory),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Sort {
    by: Field,
    descending: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Field {
    Id,
    Name,
    Hostname,
    Index,
    Model,
    Vendor,
    Driver,
    State,
    Judgement,
    LastSeen,
    Memory,
    Metric(MetricId),
}

impl Sort {
    /// Whether it is an order of how GPUs do.
    pub(super) fn is_of_judgement(self) -> bool {
        matches!(self.by, Field::State | Field::Judgement)
    }

    pub(super) fn compare(self, one: &JudgedGpu<'_>, other: &JudgedGpu<'_>) -> Ordering {
        let (a, b): (&GpuState, &GpuState) = (one.gpu, other.gpu);
        let text = |gpu: &GpuState, column| gpu.identity.shared(column).cloned();
        match self.by {
            Field::Id => self.known(Some(&a.key), Some(&b.key)),
            Field::Name => {
                let hosts = self.known(text(a, IdentityColumn::Node), text(b, IdentityColumn::Node));
                let indices = || self.known(a.identity.index, b.identity.index);
                hosts.then_with(indices).then_with(|| self.known(Some(&a.key), Some(&b.key)))
            }
            Field::Hostname => self.known(text(a, IdentityColumn::Node), text(b, IdentityColumn::Node)),
            Field::Index => self.known(a.identity.index, b.identity.index),
            Field::Model => self.known(text(a, IdentityColumn::Model), text(b, IdentityColumn::Model)),
            Field::Vendor => self.known(text(a, IdentityColumn::Vendor), text(b, IdentityColumn::Vendor)),
            Field::Driver => self.known(text(a, IdentityColumn::Driver), text(b, IdentityColumn::Driver)),
            Field::LastSeen => self.known(Some(a.last_seen_ns), Some(b.last_seen_ns)),
            Field::Memory => self.known(condition::memory_mb(a), condition::memory_mb(b)),
            Field::Metric(id) => {
                let value = |gpu| Fleet::latest(gpu, id).map(|latest| latest.value.as_f64());
                self.known_by(value(a), value(b), f64::total_cmp)
            }
            Field::State => self.known(Some(one.state.urgency()), Some(other.state.urgency())),
            Field::Judgement => self.known(Some(one.judgement), Some(other.judgement)),
        }
    }

    fn known<T: Ord>(self, a: Option<T>, b: Option<T>) -> Ordering {
        self.known_by(a, b, T::cmp)
    }

    /// Unknown values come last in either direction.
    fn known_by<T>(self, a: Option<T>, b: Option<T>, cmp: impl Fn(&T, &T) -> Ordering) -> Ordering {
        match (a, b) {
            (Some(a), Some(b)) if self.descending => cmp(&b, &a),
            (Some(a), Some(b)) => cmp(&a, &b),
            (a, b) => b.is_some().cmp(&a.is_some()),
        }
    }
}

/// The order that a parameter names.
///
/// # Errors
/// If there is no such field.
pub(super) fn sort(text: &str) -> Result<Sort, ApiError> {
    let (name, descending) = text.strip_prefix('-').map_or((text, false), |name| (name, true));
    if let Some((_, by)) = FIELDS.iter().find(|(field, _)| *field == name) {
        return Ok(Sort { by: *by, descending });
    }
    let metric = parameter::gpu_metric("sort", name).map_err(|_| {
        let fields = FIELDS.map(|(field, _)| field).join(", ");
        ApiError::parameter(
            "sort",
            text,
            format!("{fields}, or a metric's column; - before it turns the order round"),
        )
    });
    Ok(Sort { by: Field::Metric(metric?), descending })
}
