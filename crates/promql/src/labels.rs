//! Labels of a series.

use std::sync::Arc;

/// The label that holds the name of a series.
pub(crate) const NAME: &str = "__name__";

/// Labels, by name; none has an empty text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeriesLabels(Vec<(Arc<str>, Arc<str>)>);

impl SeriesLabels {
    /// Of names and texts in any order; of two with one name the later.
    pub(crate) fn of(pairs: impl IntoIterator<Item = (Arc<str>, Arc<str>)>) -> Self {
        let mut labels = Self::default();
        pairs.into_iter().for_each(|(name, text)| labels.set(name, text));
        labels
    }

    /// The text of a label; empty if it has none.
    pub fn get(&self, name: &str) -> &str {
        self.find(name).ok().and_then(|at| self.0.get(at)).map_or("", |(_, text)| text)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, text)| (name.as_ref(), text.as_ref()))
    }

    /// Sets a label; an empty text removes it.
    pub(crate) fn set(&mut self, name: Arc<str>, text: Arc<str>) {
        match (self.find(&name), text.is_empty()) {
            (Ok(at), true) => drop(self.0.remove(at)),
            (Ok(at), false) => {
                if let Some(label) = self.0.get_mut(at) {
                    label.1 = text;
                }
            }
            (Err(_), true) => {}
            (Err(at), false) => self.0.insert(at, (name, text)),
        }
    }

    /// Without the name of the series.
    pub(crate) fn without_name(&self) -> Self {
        self.kept(|name| name != NAME)
    }

    /// Those whose names pass.
    pub(crate) fn kept(&self, keeps: impl Fn(&str) -> bool) -> Self {
        Self(self.0.iter().filter(|(name, _)| keeps(name)).cloned().collect())
    }

    /// Copies a label of others, or removes it if they have none.
    pub(crate) fn copy(&mut self, name: &Arc<str>, from: &Self) {
        self.set(Arc::clone(name), from.get(name).into());
    }

    fn find(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(own, _)| (**own).cmp(name))
    }
}
