//! Where the families come from.

use std::fmt;
use std::sync::Arc;

use gpuvitals_core::figures::Family;
use gpuvitals_listener::Figures;

/// Families, in parts of any size.
pub type FamilyParts = Box<dyn Iterator<Item = Vec<Family>>>;

/// Reads the families of a service.
#[derive(Clone)]
pub struct ReadFamilies(Arc<dyn Fn() -> Option<FamilyParts> + Send + Sync>);

impl ReadFamilies {
    /// Of a function, which may block its thread. None: they cannot be read now, and nothing is sent.
    pub fn new(read: impl Fn() -> Option<FamilyParts> + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// As they are now.
    pub(crate) fn read(&self) -> Option<FamilyParts> {
        (self.0)()
    }
}

impl From<Figures> for ReadFamilies {
    fn from(figures: Figures) -> Self {
        Self::new(move || Some(Box::new(std::iter::once(figures.read()))))
    }
}

impl fmt::Debug for ReadFamilies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReadFamilies")
    }
}
