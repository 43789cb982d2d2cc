//! Which series there are: the exposition's, for the GPUs and hosts of a history.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use gpuvitals_core::{Identity, IdentityColumn};
use gpuvitals_exposition::ColumnSeries;
use promql_parser::label::Matcher;

use crate::error::PromError;
use crate::labels::{NAME, SeriesLabels};
use crate::needs::{EXPORTED, Exported, Fetch};

/// Every series that a history can show.
#[derive(Debug)]
pub(crate) struct Names {
    pub(crate) series: Vec<ColumnSeries>,
    /// Names of families that a scrape shows, and a history cannot.
    others: Vec<Cow<'static, str>>,
    /// Names of labels, to be shared by all series.
    labels: HashMap<&'static str, Arc<str>>,
}

/// Names of the labels that a scraper adds.
const TARGET: [&str; 3] = ["cluster", "instance", "node"];

impl Names {
    pub(crate) fn all() -> &'static Self {
        static NAMES: OnceLock<Names> = OnceLock::new();
        NAMES.get_or_init(|| {
            let (series, others) = ColumnSeries::all();
            let mut whole = Identity::default();
            whole.index = Some(0);
            for column in IdentityColumn::ALL {
                // A short text is one of every column.
                let _is_one = whole.set(column, "a");
            }
            let own = series.iter().filter_map(|series| series.labels(&whole)).flatten();
            let exported = EXPORTED.map(|(name, _)| name);
            let names = own.map(|(name, _)| name).chain(TARGET).chain(exported).chain([NAME]);
            let labels = names.map(|name| (name, Arc::from(name))).collect();
            Names { series, others, labels }
        })
    }

    /// The name of a label.
    fn label(&self, name: &'static str) -> Arc<str> {
        self.labels.get(name).map_or_else(|| Arc::from(name), Arc::clone)
    }

    /// The series whose names a selector matches.
    ///
    /// # Errors
    /// If it names what a history cannot show.
    pub(crate) fn of(&'static self, fetch: &Fetch) -> Result<Vec<&'static ColumnSeries>, PromError> {
        if !fetch.matchers.or_matchers.is_empty() {
            return Err(PromError::Unsupported("`or` between matchers".to_owned()));
        }
        let is_named = |name: &str| {
            fetch.name.as_ref().is_none_or(|wanted| wanted == name)
                && of_name(&fetch.matchers.matchers).all(|matcher| matcher.is_match(name))
        };
        if let Some(name) = fetch.name.as_ref()
            && self.others.iter().any(|other| other == name)
        {
            return Err(PromError::NotKept(name.clone()));
        }
        Ok(self.series.iter().filter(|series| is_named(&series.name)).collect())
    }
}

fn of_name(matchers: &[Matcher]) -> impl Iterator<Item = &Matcher> {
    matchers.iter().filter(|matcher| matcher.name == NAME)
}

/// The labels of a series of a GPU or host: the exposition's, and those that a scraper adds.
pub(crate) fn labels(series: &ColumnSeries, identity: &Identity, exported: Exported) -> Option<SeriesLabels> {
    let own = series.labels(identity)?;
    let text = |column: IdentityColumn| identity.shared(column).cloned().unwrap_or_default();
    let (names, node) = (Names::all(), text(IdentityColumn::Node));
    let texts = [text(IdentityColumn::Cluster), Arc::clone(&node), node];
    let target = TARGET.into_iter().zip(texts).chain([(NAME, Arc::from(series.name.as_ref()))]);
    let own = own.into_iter().map(|(name, text)| (name, Arc::from(text)));
    let exported = series.names_holder().then(|| exported.labels(identity)).into_iter().flatten();
    let all = target.chain(own).chain(exported);
    Some(SeriesLabels::of(all.map(|(name, text)| (names.label(name), text))))
}

/// Whether labels pass the tests of a selector.
pub(crate) fn passes(fetch: &Fetch, labels: &SeriesLabels) -> bool {
    fetch.matchers.matchers.iter().all(|matcher| matcher.is_match(labels.get(&matcher.name)))
}
