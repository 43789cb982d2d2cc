//! The use of GPUs over connections, and over several histories.

use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::history::History;
use gpuvitals_core::usage::{GpuUse, UseDetail, UseQuery};
use gpuvitals_remote::{Merged, NamedHistory};
use gpuvitals_suite::{BASE_NS, TestRow, batch};

use crate::world::{Kept, Service, remote};

const SECOND_NS: i64 = 1_000_000_000;

/// Two GPUs, whose job changes now and then, every second of half a minute.
fn frame(number: i64) -> Vec<TestRow> {
    let row = |gpu: u8, second: i64| TestRow {
        power: Some(800),
        job: u8::try_from(second / 100 % 2).ok(),
        ..TestRow::of(gpu, second)
    };
    (number * 30..(number + 1) * 30).flat_map(|second| [row(0, second), row(1, second)]).collect()
}

async fn used(history: &dyn History, seconds: i64) -> Vec<GpuUse> {
    used_by(history, seconds, None).await
}

async fn used_by(history: &dyn History, seconds: i64, step_ns: Option<i64>) -> Vec<GpuUse> {
    let query = UseQuery { step_ns, ..UseQuery::of(BASE_NS, BASE_NS + seconds * SECOND_NS) };
    let part = history.usage(query).await.unwrap();
    assert_eq!(part.missing, Vec::<String>::new());
    part.answer
}

#[tokio::test]
async fn a_remote_history_and_several_have_the_use_of_all_rows() {
    let (a, b, all) = (Kept::new(), Kept::new(), Kept::new());
    for number in 0..20 {
        // A queue gives its frames to the collectors in turn, and one of them twice.
        let frame = batch(&frame(number));
        let to = if number % 2 == 0 { &a } else { &b };
        to.store.append(vec![frame.clone()]).await.unwrap();
        if number == 4 {
            b.store.append(vec![frame.clone()]).await.unwrap();
        }
        all.store.append(vec![frame]).await.unwrap();
    }
    let wanted = used(&all.store, 600).await;
    assert_eq!(wanted.len(), 4);
    let joules: f64 = wanted.iter().filter_map(|one| one.held.joules).sum();
    assert!((joules - 2.0 * 599.0 * 100.0).abs() < 1e-6, "{joules}");

    let service = Service::new(Arc::new(all.store.clone())).await;
    assert_eq!(used(&remote(&service), 600).await, wanted);
    let named =
        |name: &str, kept: &Kept| NamedHistory { name: name.into(), history: Arc::new(kept.store.clone()) };
    let both = Merged::new(vec![named("a", &a), named("b", &b)], Duration::from_secs(30));
    assert_eq!(used(&both, 600).await, wanted);
    let by_minute = used_by(&all.store, 600, Some(60 * SECOND_NS)).await;
    assert!(by_minute.len() > wanted.len());
    assert_eq!(used_by(&remote(&service), 600, Some(60 * SECOND_NS)).await, by_minute);
    assert_eq!(used_by(&both, 600, Some(60 * SECOND_NS)).await, by_minute);
    let times = |uses: &[GpuUse]| -> Vec<_> {
        let of = |one: &GpuUse| (one.gpu.clone(), one.holder.clone(), one.rows_ns, one.first_ns, one.last_ns);
        uses.iter().map(of).collect()
    };
    for history in [&remote(&service) as &dyn History, &both] {
        let query = UseQuery::of(BASE_NS, BASE_NS + 600 * SECOND_NS);
        let part = history.usage(UseQuery { detail: UseDetail::Times, ..query }).await.unwrap();
        assert_eq!((times(&part.answer), part.missing), (times(&wanted), Vec::new()));
        assert!(part.answer.iter().all(|one| one.held.joules.is_none()), "times alone were asked for");
    }
    let one = |history: Arc<dyn History>| async move {
        let query =
            UseQuery { gpus: vec!["GPU-1".into()], ..UseQuery::of(BASE_NS, BASE_NS + 600 * SECOND_NS) };
        history.usage(query).await.unwrap().answer
    };
    let of_one: Vec<GpuUse> = wanted.iter().filter(|one| one.gpu.as_ref() == "GPU-1").cloned().collect();
    assert_eq!(of_one.len(), 2);
    assert_eq!(one(Arc::new(remote(&service))).await, of_one);
    assert_eq!(one(Arc::new(both)).await, of_one);
    service.end().await;
}

#[tokio::test]
async fn many_rows_of_two_collectors_are_added_up_though_a_third_is_away() {
    let (a, b) = (Kept::new(), Kept::new());
    // Ten-second frames in turn: more rows than a page of either.
    for frame in 0..2_500 {
        let row = |second| TestRow { power: Some(800), ..TestRow::of(0, second) };
        let rows: Vec<TestRow> = (frame * 10..(frame + 1) * 10).map(row).collect();
        let to = if frame % 2 == 0 { &a } else { &b };
        to.store.append(vec![batch(&rows)]).await.unwrap();
    }
    let named = |name: &str, history: Arc<dyn History>| NamedHistory { name: name.into(), history };
    let away = Merged::new(Vec::new(), Duration::from_secs(30));
    let members = vec![
        named("a", Arc::new(a.store.clone())),
        named("b", Arc::new(b.store.clone())),
        named("c", Arc::new(away)),
    ];
    let all = Merged::new(members, Duration::from_secs(30));
    let query = UseQuery::of(BASE_NS, BASE_NS + 25_000 * SECOND_NS);
    let part = all.usage(query).await.unwrap();
    let seconds: f64 = part.answer.iter().map(|one| one.held.seconds).sum();
    assert!((seconds - 24_999.0).abs() < 1e-6, "{seconds}");
    assert!(part.missing.iter().all(|words| words.starts_with("c: ")), "{:?}", part.missing);
}

/// Eight rows a second apart, each minute.
fn bursts() -> Vec<i64> {
    (0..117).flat_map(|minute| (1..9).map(move |second| 60 * minute + second)).collect()
}

#[tokio::test]
async fn a_use_that_few_rows_do_not_tell_is_not_blamed_on_their_number() {
    // A row a minute at one collector, eight in turn at the other: side by side, the pauses are gaps.
    let (a, b) = (Kept::new(), Kept::new());
    for (kept, rows) in [(&a, (0..117).map(|minute| 60 * minute).collect::<Vec<_>>()), (&b, bursts())] {
        let row = |second: &i64| TestRow { power: Some(800), ..TestRow::of(0, *second) };
        kept.store.append(vec![batch(&rows.iter().map(row).collect::<Vec<_>>())]).await.unwrap();
    }
    let named =
        |name: &str, kept: &Kept| NamedHistory { name: name.into(), history: Arc::new(kept.store.clone()) };
    let both = Merged::new(vec![named("a", &a), named("b", &b)], Duration::from_secs(30));
    let query = UseQuery::of(BASE_NS, BASE_NS + 7_200 * SECOND_NS);
    let part = both.usage(query).await.unwrap();
    let [words] = &part.missing[..] else { panic!("{:?}", part.missing) };
    assert!(words.contains("the use of 1 GPU is added up"), "{words}");
    assert!(words.contains("come at uneven distances") && !words.contains("2000000"), "{words}");
}
