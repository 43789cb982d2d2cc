//! Figures by steps as messages and back. Only places with a value are sent.

use std::ops::Range;
use std::sync::Arc;

use gpuvitals_core::history::{
    BucketQuery, Buckets, COUNTS_MAX, Cell, GroupName, Measured, Part, QueryError, Track,
};
use gpuvitals_core::sketch::Sketch;

use crate::v1;

/// Places of one message.
const PLACES: usize = 8_192;

/// An answer that is none to the question.
#[derive(Debug, thiserror::Error)]
#[error("the other gpuvitals answered with figures that do not fit the question: {0}")]
pub(crate) struct Misfit(&'static str);

impl From<Misfit> for QueryError {
    fn from(misfit: Misfit) -> Self {
        Self::failed(misfit)
    }
}

/// The messages of an answer; at least one. Each is made when it is taken.
pub(crate) fn parts(answer: Part<Buckets>) -> impl Iterator<Item = v1::BucketsPart> + Send + 'static {
    let Part { answer: buckets, missing } = answer;
    let end = v1::BucketsPart { rollup_ns: buckets.rollup_ns(), missing, ..Default::default() };
    let buckets = Arc::new(buckets);
    let (of_groups, of_lanes) = (Arc::clone(&buckets), Arc::clone(&buckets));
    let groups = chunks(buckets.groups().len()).map(move |places| groups(&of_groups, places));
    let lanes = chunks(buckets.lanes().len()).map(move |places| lanes(&of_lanes, places));
    let figures = (0..buckets.metrics().len()).flat_map(move |metric| {
        let (of_cells, of_tracks) = (Arc::clone(&buckets), Arc::clone(&buckets));
        let count = |of: fn(&Measured) -> usize| buckets.metrics().get(metric).map_or(0, of);
        let cells = chunks(count(|measured| measured.cells.len()))
            .filter_map(move |places| cells(of_cells.metrics().get(metric)?, metric, places));
        let tracks = chunks(count(|measured| measured.tracks.len()))
            .filter_map(move |places| tracks(of_tracks.metrics().get(metric)?, metric, places));
        cells.chain(tracks)
    });
    groups.chain(lanes).chain(figures).chain([end])
}

/// Places by the message.
fn chunks(count: usize) -> impl Iterator<Item = Range<usize>> + Send + 'static {
    (0..count).step_by(PLACES).map(move |start| start..count.min(start + PLACES))
}

fn number(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}

fn groups(buckets: &Buckets, places: Range<usize>) -> v1::BucketsPart {
    let text = |text: &Option<Arc<str>>| v1::group::Text { text: text.as_deref().map(str::to_owned) };
    let group = |name: &GroupName| v1::Group { texts: name.iter().map(text).collect() };
    let names = buckets.groups().get(places).unwrap_or_default();
    v1::BucketsPart { groups: names.iter().map(group).collect(), ..Default::default() }
}

fn lanes(buckets: &Buckets, places: Range<usize>) -> v1::BucketsPart {
    let lane = |(group, gpu): &(usize, Arc<str>)| v1::Lane { group: number(*group), gpu: gpu.to_string() };
    let names = buckets.lanes().get(places).unwrap_or_default();
    v1::BucketsPart { lanes: names.iter().map(lane).collect(), ..Default::default() }
}

/// The figures of these places, if there are some.
fn cells(measured: &Measured, metric: usize, places: Range<usize>) -> Option<v1::BucketsPart> {
    let mut cells = v1::Cells { metric: number(metric), ..Default::default() };
    for place in places {
        let Some(cell) = measured.cells.get(place).filter(|cell| cell.count > 0) else { continue };
        cells.places.push(place as u64);
        cells.counts.push(cell.count);
        cells.sums.push(cell.sum);
        cells.minima.push(cell.min);
        cells.maxima.push(cell.max);
        cells.last_ns.push(cell.last_ns);
        cells.lasts.push(cell.last);
        if let Some(sketch) = measured.sketches.get(place) {
            let mut bytes = Vec::new();
            sketch.encode(&mut bytes);
            cells.sketches.push(bytes.into());
        }
    }
    let is_empty = cells.places.is_empty();
    (!is_empty).then(|| v1::BucketsPart { cells: vec![cells], ..Default::default() })
}

/// The tracks of these places, if there are some.
fn tracks(measured: &Measured, metric: usize, places: Range<usize>) -> Option<v1::BucketsPart> {
    let mut tracks = v1::Tracks { metric: number(metric), ..Default::default() };
    for place in places {
        let Some(track) = measured.tracks.get(place).filter(|track| !track.is_empty()) else { continue };
        tracks.places.push(place as u64);
        tracks.first_ns.push(track.first_ns);
        tracks.firsts.push(track.first);
        tracks.last_ns.push(track.last_ns);
        tracks.lasts.push(track.last);
        tracks.falls.push(track.falls);
    }
    let is_empty = tracks.places.is_empty();
    (!is_empty).then(|| v1::BucketsPart { tracks: vec![tracks], ..Default::default() })
}

/// An answer, put together from its messages.
pub(crate) struct Gathering {
    answer: Part<Buckets>,
    aggregates: usize,
    /// Counts that the sketches hold.
    counts: usize,
}

impl Gathering {
    /// # Errors
    /// If the question makes no sense; see [`QueryError`].
    pub(crate) fn new(query: &BucketQuery) -> Result<Self, QueryError> {
        let steps = query.steps()?;
        query.check_metrics()?;
        let answer = Part::whole(Buckets::new(steps, &query.metrics, &query.aggregates));
        Ok(Self { answer, aggregates: query.aggregates.len(), counts: 0 })
    }

    /// # Errors
    /// If the message does not fit the question, or the answer becomes larger than one may be.
    pub(crate) fn add(&mut self, part: v1::BucketsPart) -> Result<(), QueryError> {
        let Part { answer: buckets, missing } = &mut self.answer;
        for group in part.groups {
            let name: GroupName = group.texts.into_iter().map(|text| text.text.map(Arc::from)).collect();
            let _number = buckets.group(&name);
        }
        for lane in part.lanes {
            let group = lane.group as usize;
            if group >= buckets.groups().len() || !buckets.has_tracks() {
                return Err(Misfit("a lane of no group").into());
            }
            let _number = buckets.lane(group, &Arc::from(lane.gpu));
        }
        buckets.check_points(self.aggregates)?;
        for cells in part.cells {
            let measured = buckets.metrics_mut().get_mut(cells.metric as usize);
            self.counts += add_cells(measured.ok_or(Misfit("an unknown metric"))?, &cells)?;
        }
        for tracks in part.tracks {
            let measured = buckets.metrics_mut().get_mut(tracks.metric as usize);
            add_tracks(measured.ok_or(Misfit("an unknown metric"))?, &tracks)?;
        }
        if self.counts as u64 > COUNTS_MAX {
            return Err(QueryError::TooManyValues { max: COUNTS_MAX });
        }
        buckets.read(part.rollup_ns);
        missing.extend(part.missing);
        Ok(())
    }

    /// The whole answer.
    ///
    /// # Errors
    /// If it is larger than one may be.
    pub(crate) fn finish(self) -> Result<Part<Buckets>, QueryError> {
        self.answer.answer.check(self.aggregates)?;
        Ok(self.answer)
    }
}

/// Adds figures; returns how many counts their sketches have added.
fn add_cells(measured: &mut Measured, cells: &v1::Cells) -> Result<usize, Misfit> {
    let has_sketches = !measured.sketches.is_empty();
    let mut counts = 0;
    for (at, place) in cells.places.iter().enumerate() {
        let cell = || {
            Some(Cell {
                count: *cells.counts.get(at)?,
                sum: *cells.sums.get(at)?,
                min: *cells.minima.get(at)?,
                max: *cells.maxima.get(at)?,
                last_ns: *cells.last_ns.get(at)?,
                last: *cells.lasts.get(at)?,
            })
        };
        let cell = cell().ok_or(Misfit("lists of unequal length"))?;
        let place = usize::try_from(*place).unwrap_or(usize::MAX);
        let own = measured.cells.get_mut(place).ok_or(Misfit("a place that no group has"))?;
        own.merge(&cell);
        if has_sketches {
            let bytes = cells.sketches.get(at).ok_or(Misfit("lists of unequal length"))?;
            let sketch: &mut Sketch =
                measured.sketches.get_mut(place).ok_or(Misfit("a place that no group has"))?;
            let before = sketch.buckets();
            if !sketch.merge_encoded(bytes) {
                return Err(Misfit("a sketch that is none"));
            }
            counts += sketch.buckets() - before;
        }
    }
    Ok(counts)
}

fn add_tracks(measured: &mut Measured, tracks: &v1::Tracks) -> Result<(), Misfit> {
    for (at, place) in tracks.places.iter().enumerate() {
        let track = || {
            Some(Track {
                first_ns: *tracks.first_ns.get(at)?,
                first: *tracks.firsts.get(at)?,
                last_ns: *tracks.last_ns.get(at)?,
                last: *tracks.lasts.get(at)?,
                falls: *tracks.falls.get(at)?,
            })
        };
        let track = track().ok_or(Misfit("lists of unequal length"))?;
        let place = usize::try_from(*place).unwrap_or(usize::MAX);
        let own = measured.tracks.get_mut(place).ok_or(Misfit("a place that no lane has"))?;
        own.merge(&track);
    }
    Ok(())
}
