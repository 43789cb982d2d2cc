//! A GPU is shown with labels and latest values.

use gpuvitals_core::history::GpuState;
use gpuvitals_core::{IdentityColumn, Table};

use crate::asked::Columns;
use crate::dto::LatestMetrics;
use crate::error::ApiError;
use crate::parameter;
use crate::rack::RackPattern;

/// What GPUs are called or grouped by, beside their own fields.
#[derive(Debug, Clone, Copy)]
pub(in crate::route) enum Label {
    Identity(IdentityColumn),
    /// The rack of its host.
    Rack,
}

impl Label {
    pub(super) const RACK: &str = "rack";

    pub(in crate::route) fn by_name(name: &str) -> Option<Self> {
        if name == Self::RACK { Some(Self::Rack) } else { IdentityColumn::by_name(name).map(Self::Identity) }
    }

    pub(in crate::route) fn name(self) -> &'static str {
        match self {
            Self::Identity(column) => column.name(),
            Self::Rack => Self::RACK,
        }
    }

    /// The identity column that it is; none of a rack, which is taken out of a name.
    pub(in crate::route) fn column(self) -> Option<IdentityColumn> {
        match self {
            Self::Identity(column) => Some(column),
            Self::Rack => None,
        }
    }

    /// The label of what has these texts.
    pub(in crate::route) fn text<'a>(
        self,
        text: impl Fn(IdentityColumn) -> Option<&'a str>,
        racks: Option<&RackPattern>,
    ) -> Option<&'a str> {
        match self {
            Self::Identity(column) => text(column),
            Self::Rack => racks?.rack_of(text(IdentityColumn::Node)?),
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
