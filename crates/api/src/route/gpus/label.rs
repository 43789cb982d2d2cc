//! A GPU is shown with labels and latest values.

use gpuvitals_core::history::GpuState;
use gpuvitals_core::{IdentityColumn, Table};

use crate::asked::Columns;
use crate::dto::LatestMetrics;
use crate::error::ApiError;
use crate::parameter;
use crate::rack::RackPattern;

/// What the list says of a GPU beside its own fields.
#[derive(Debug, Clone, Copy)]
pub(super) enum Label {
    Identity(IdentityColumn),
    /// The rack of its host.
    Rack,
}

impl Label {
    pub(super) const RACK: &str = "rack";

    pub(super) fn by_name(name: &str) -> Option<Self> {
        if name == Self::RACK { Some(Self::Rack) } else { IdentityColumn::by_name(name).map(Self::Identity) }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Identity(column) => column.name(),
            Self::Rack => Self::RACK,
        }
    }

    pub(super) fn text<'a>(self, gpu: &'a GpuState, racks: Option<&RackPattern>) -> Option<&'a str> {
        match self {
            Self::Identity(column) => gpu.identity.get(column),
            Self::Rack => racks?.rack_of(gpu.identity.node()?),
        }
    }
}

/// The latest values that are shown.
#[derive(Debug)]
pub(super) enum Latest {
    None,
    All,
    Of(Vec<String>),
}

impl Latest {
    pub(super) fn parse(include: Option<&String>, metrics: Option<&Columns>) -> Result<Self, ApiError> {
        let names = parameter::list("include", include)?;
        if let Some(other) = names.iter().find(|name| name.as_ref() != "metrics") {
            return Err(ApiError::parameter("include", other, "metrics"));
        }
        Ok(match Columns::read(Table::GpuEvents, metrics)? {
            Some(columns) => Self::Of(columns),
            None if names.is_empty() => Self::None,
            None => Self::All,
        })
    }

    pub(super) fn columns(&self) -> Option<&[String]> {
        match self {
            Self::Of(columns) => Some(columns),
            Self::None | Self::All => None,
        }
    }

    pub(super) fn of<'a>(&'a self, gpu: &'a GpuState) -> Option<LatestMetrics<'a>> {
        let is_shown = !matches!(self, Self::None);
        is_shown.then(|| LatestMetrics { gpu, wanted: self.columns() })
    }
}
