//! Figures by steps as messages and back. Only places with a value are sent.

use std::sync::Arc;

use gpuvitals_core::history::{
    BucketQuery, Buckets, COUNTS_MAX, Cell, GroupName, Measured, Part, QueryError, TimeSteps, Track,
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

/// The messages of an answer; at least one.
pub(crate) fn parts(answer: Part<Buckets>) -> Vec<v1::BucketsPart> {
    let Part { answer: buckets, missing } = answer;
    let texts = |name: &GroupName| {
        let text = |text: &Option<Arc<str>>| v1::group::Text { text: text.as_deref().map(str::to_owned) };
        v1::Group { texts: name.iter().map(text).collect() }
    };
    let number = |group: usize| u32::try_from(group).unwrap_or(u32::MAX);
    let lane = |(group, gpu): &(usize, Arc<str>)| v1::Lane { group: number(*group), gpu: gpu.to_string() };
    let of_groups = buckets.groups().chunks(PLACES);
    let mut parts: Vec<v1::BucketsPart> = of_groups
        .map(|groups| v1::BucketsPart { groups: groups.iter().map(texts).collect(), ..Default::default() })
        .collect();
    let of_lanes = buckets.lanes().chunks(PLACES);
    parts.extend(
        of_lanes
            .map(|lanes| v1::BucketsPart { lanes: lanes.iter().map(lane).collect(), ..Default::default() }),
    );
    for (metric, measured) in (0..).zip(buckets.metrics()) {
        let places: Vec<usize> = filled(&measured.cells, |cell| cell.count > 0);
        parts.extend(places.chunks(PLACES).map(|places| v1::BucketsPart {
            cells: vec![cells(metric, measured, places)],
            ..Default::default()
        }));
        let places: Vec<usize> = filled(&measured.tracks, |track| !track.is_empty());
        parts.extend(places.chunks(PLACES).map(|places| v1::BucketsPart {
            tracks: vec![tracks(metric, measured, places)],
            ..Default::default()
        }));
    }
    parts.push(v1::BucketsPart { rollup_ns: buckets.rollup_ns(), missing, ..Default::default() });
    parts
}

/// Places of those that are not empty.
fn filled<T>(all: &[T], is_filled: impl Fn(&T) -> bool) -> Vec<usize> {
    all.iter().enumerate().filter(|(_, one)| is_filled(one)).map(|(place, _)| place).collect()
}

fn cells(metric: u32, measured: &Measured, places: &[usize]) -> v1::Cells {
    let mut cells = v1::Cells { metric, ..Default::default() };
    for &place in places {
        let Some(cell) = measured.cells.get(place) else { continue };
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
    cells
}

fn tracks(metric: u32, measured: &Measured, places: &[usize]) -> v1::Tracks {
    let mut tracks = v1::Tracks { metric, ..Default::default() };
    for &place in places {
        let Some(track) = measured.tracks.get(place) else { continue };
        tracks.places.push(place as u64);
        tracks.first_ns.push(track.first_ns);
        tracks.firsts.push(track.first);
        tracks.last_ns.push(track.last_ns);
        tracks.lasts.push(track.last);
        tracks.falls.push(track.falls);
    }
    tracks
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
        let steps = TimeSteps::new(query.start_ns, query.end_ns, query.step_ns)?;
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
