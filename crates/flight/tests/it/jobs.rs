//! Incidents of whole jobs: what is asked, what is taken, and what a restart finds.

use std::path::Path;

use gpuvitals_core::batch::Value;
use gpuvitals_core::time::{MINUTE_NS, SECOND_NS};
use gpuvitals_core::wire::pack;
use gpuvitals_core::{Batch, BatchBuilder, Identity, IdentityColumn, MetricId, Origin, Table};
use gpuvitals_flight::{
    FlightTrigger, JobError, JobIncidents, JobMembers, JobTrigger, RoundTrip, WindowPart, WindowPieces,
};
use tempfile::tempdir;

/// When the first trigger is.
const AT_NS: i64 = 1_796_007_299_000_000_000;
const NODES: [&str; 3] = ["n1", "n2", "n3"];

fn open(directory: &Path) -> JobIncidents {
    JobIncidents::open(directory, 3).unwrap()
}

fn told(node: &str, incident: &str, at_ns: i64) -> JobTrigger {
    let trigger = FlightTrigger {
        kind: "lost".to_owned(),
        gpu: Some(format!("GPU-{node}")),
        code: None,
        detail: "it reports nothing any more".to_owned(),
        rule: None,
        at_ns,
    };
    JobTrigger { node: node.to_owned(), incident: incident.to_owned(), trigger }
}

fn members(job: &str, nodes: &[&str]) -> JobMembers {
    JobMembers {
        job: format!("a/research/{job}"),
        nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
    }
}

/// The incident that a node's trigger is a part of.
fn tell(incidents: &JobIncidents, told: &JobTrigger, now_ns: i64) -> String {
    incidents.tell(told, Some(&members("train-7", &NODES)), now_ns).unwrap().expect("the job is known")
}

/// Rows of a GPU at these seconds from the trigger on.
fn rows(table: Table, gpu: &str, seconds: std::ops::Range<i64>) -> Batch {
    let mut builder = BatchBuilder::new(table);
    let who = Identity::default()
        .with(IdentityColumn::Uuid, gpu)
        .and_then(|who| who.with(IdentityColumn::Node, "n1"))
        .unwrap();
    let who = builder.intern(&who);
    for second in seconds {
        let row = builder.row_at(AT_NS + second * SECOND_NS, second * SECOND_NS, who);
        if table == Table::GpuEvents {
            builder.set(row, MetricId::of("power_w"), Value::Float(300.0)).unwrap();
        }
    }
    builder.finish(Origin::default(), 1).unwrap()
}

fn pieces(batches: &[Batch]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for batch in batches {
        let mut piece = Vec::new();
        pack(batch, &mut piece).unwrap();
        bytes.extend_from_slice(&u32::try_from(piece.len()).unwrap().to_le_bytes());
        bytes.extend(piece);
    }
    bytes
}

/// What comes of an answer; none: the node had answered before.
fn send(incidents: &JobIncidents, id: &str, node: &str, bytes: &[u8]) -> Result<Option<bool>, JobError> {
    let Some(mut incoming) = incidents.receive(id, node, WindowPart::Window)? else { return Ok(None) };
    for piece in bytes.chunks(1_000) {
        incoming.take(piece)?;
    }
    incidents.keep(incoming, false, AT_NS + 40 * SECOND_NS).map(Some)
}

/// How many requests stand for a node.
fn standing(incidents: &JobIncidents, node: &str, now_ns: i64) -> usize {
    incidents.requests(node, now_ns).now.len()
}

#[test]
fn two_hundred_triggers_of_a_minute_are_one_incident_and_one_request_a_node() {
    let folder = tempdir().unwrap();
    let incidents = open(folder.path());
    let first = tell(&incidents, &told("n2", "20261130T025459Z-lost", AT_NS), AT_NS + SECOND_NS);
    for number in 0..199 {
        let node = NODES.iter().cycle().nth(number).unwrap();
        let at_ns = AT_NS + i64::try_from(number).unwrap() * SECOND_NS / 4;
        assert_eq!(tell(&incidents, &told(node, &format!("own-{number}"), at_ns), at_ns + SECOND_NS), first);
    }
    let listed = incidents.list();
    let [incident] = &listed[..] else { panic!("{listed:?}") };
    assert_eq!((&incident.id, incident.told, incident.nodes.len()), (&first, 200, 3));
    assert_eq!(incident.triggers.first().unwrap().node, "n2");
    assert!(incident.triggers.len() < 100, "they are counted");
    for node in NODES {
        let requests = incidents.requests(node, AT_NS + MINUTE_NS).now;
        let [request] = &requests[..] else { panic!("{node}: {requests:?}") };
        assert_eq!((&request.id, request.part, request.by.as_str()), (&first, WindowPart::Window, "n2"));
        let asked = (request.asked.from_ns - AT_NS, request.asked.to_ns - AT_NS);
        assert_eq!(asked, (-60 * SECOND_NS, 30 * SECOND_NS));
    }
    assert_eq!(standing(&incidents, "n4", AT_NS + MINUTE_NS), 0);
    // What was told once is known at any time; another one of a later minute is another incident.
    let late_ns = AT_NS + 9 * MINUTE_NS;
    assert_eq!(tell(&incidents, &told("n2", "20261130T025459Z-lost", AT_NS), late_ns), first);
    assert_ne!(tell(&incidents, &told("n2", "later", late_ns), late_ns), first);
    // Of a lost GPU the job may not be known, but that its node was asked.
    let lost = told("n3", "of-nobody", AT_NS + SECOND_NS);
    assert_eq!(incidents.tell(&lost, None, AT_NS + MINUTE_NS).unwrap(), Some(first));
    assert_eq!(incidents.tell(&told("n9", "x", AT_NS), None, AT_NS).unwrap(), None);
}

#[test]
fn a_node_of_two_jobs_is_asked_once_a_minute() {
    let folder = tempdir().unwrap();
    let incidents = open(folder.path());
    let one = tell(&incidents, &told("n1", "one", AT_NS), AT_NS);
    let other = members("train-8", &["n3", "n4"]);
    let other = incidents.tell(&told("n4", "two", AT_NS + 1), Some(&other), AT_NS + 1).unwrap().unwrap();
    assert_ne!(one, other);
    assert_eq!([standing(&incidents, "n3", AT_NS + 2), standing(&incidents, "n4", AT_NS + 2)], [1, 1]);
    let due_ns = incidents.requests("n3", AT_NS + 2).next_ns.expect("the other one waits");
    assert_eq!(due_ns, AT_NS + MINUTE_NS);
    assert_eq!(standing(&incidents, "n3", due_ns), 2);
}

#[test]
fn what_a_gateway_finds_asks_all_nodes_of_the_job_once() {
    let folder = tempdir().unwrap();
    let trigger = FlightTrigger {
        kind: "finding".to_owned(),
        gpu: None,
        detail: "the job hangs".to_owned(),
        rule: Some("job_hung".to_owned()),
        ..told("n1", "own", AT_NS).trigger
    };
    let found = JobTrigger::of_gateway(format!("job_hung:a/research/train-7 {AT_NS}"), trigger);
    let find = |incidents: &JobIncidents, now_ns: i64| {
        incidents.find(&found, &members("train-7", &NODES), now_ns).unwrap().unwrap()
    };
    let incidents = open(folder.path());
    let id = find(&incidents, AT_NS + MINUTE_NS);
    for node in NODES {
        let requests = incidents.requests(node, AT_NS + MINUTE_NS).now;
        let [request] = &requests[..] else { panic!("{node}: {requests:?}") };
        assert_eq!((request.by.as_str(), request.trigger.kind.as_str()), (JobTrigger::GATEWAY, "finding"));
    }
    assert_eq!(incidents.one(&id).unwrap().nodes.len(), 3);
    drop(incidents);
    let incidents = open(folder.path());
    assert_eq!(find(&incidents, AT_NS + 5 * MINUTE_NS), id, "a gateway that starts again finds the same");
    assert_eq!(tell(&incidents, &told("n2", "own", AT_NS + SECOND_NS), AT_NS + MINUTE_NS), id);
    assert_eq!((incidents.list().len(), incidents.one(&id).unwrap().told), (1, 2));
}

#[test]
fn a_finding_about_two_jobs_of_a_node_asks_the_nodes_of_both() {
    let folder = tempdir().unwrap();
    let incidents = open(folder.path());
    let found = JobTrigger::of_gateway("node_silent:n1".to_owned(), told("n1", "own", AT_NS).trigger);
    let find =
        |job: &str, node: &str| incidents.find(&found, &members(job, &["n1", node]), AT_NS).unwrap().unwrap();
    let (one, other) = (find("train-7", "n2"), find("train-8", "n3"));
    assert_ne!(one, other);
    assert_eq!(["n2", "n3"].map(|node| standing(&incidents, node, AT_NS)), [1, 1]);
    assert_eq!((find("train-7", "n2"), find("train-8", "n3")), (one, other), "each is known");
}

#[test]
fn a_gpu_that_a_gateway_finds_is_of_the_node_that_has_sent_its_rows() {
    let folder = tempdir().unwrap();
    let incidents = open(folder.path());
    let found = JobTrigger::of_gateway("gpu_lost:GPU-n1".to_owned(), told("n1", "own", AT_NS).trigger);
    let id = incidents.find(&found, &members("train-7", &NODES), AT_NS).unwrap().unwrap();
    let first = || incidents.one(&id).unwrap().first.clone().map(|first| (first.node, first.gpu));
    assert_eq!(first(), None);
    send(&incidents, &id, "n1", &pieces(&[rows(Table::GpuEvents, "GPU-n1", 0..10)])).unwrap();
    assert_eq!(first(), Some(("n1".to_owned(), "GPU-n1".to_owned())));
}

#[test]
fn nodes_of_one_name_in_two_clusters_are_two() {
    let folder = tempdir().unwrap();
    let incidents = open(folder.path());
    let of = |cluster: &str| {
        let node = format!("{cluster}/n1");
        let members = JobMembers { job: format!("{cluster}/research/j"), nodes: [node.clone()].into() };
        incidents.tell(&told(&node, "own", AT_NS), Some(&members), AT_NS).unwrap().unwrap()
    };
    let (east, west) = (of("east"), of("west"));
    assert_ne!(east, west);
    assert_eq!(["east/n1", "west/n1", "n1"].map(|node| standing(&incidents, node, AT_NS)), [1, 1, 0]);
    assert_eq!(send(&incidents, &east, "east/n1", &[]).unwrap(), Some(true));
    assert_eq!(["east/n1", "west/n1"].map(|node| standing(&incidents, node, AT_NS)), [0, 1]);
    assert!(folder.path().join("jobs").join(&east).join("east@n1.window").exists());
}

#[test]
fn a_request_stands_until_it_is_answered_once_whoever_is_killed() {
    let folder = tempdir().unwrap();
    let mut incidents = open(folder.path());
    let id = tell(&incidents, &told("n1", "own", AT_NS), AT_NS);
    let now_ns = AT_NS + MINUTE_NS;
    // What came in part leaves nothing.
    let mut cut_off = incidents.receive(&id, "n1", WindowPart::Window).unwrap().unwrap();
    cut_off.take(b"half of a piece").unwrap();
    drop(cut_off);
    let kept =
        pieces(&[rows(Table::GpuEvents, "GPU-n1", -60..0), rows(Table::GpuEvents, "GPU-n1b", -60..31)]);
    let other = pieces(&[rows(Table::GpuEvents, "GPU-n1", 0..9)]);
    // Two answers at the same time: the first one that is whole counts.
    let mut late = incidents.receive(&id, "n1", WindowPart::Window).unwrap().unwrap();
    late.take(&other).unwrap();
    assert_eq!(send(&incidents, &id, "n1", &kept).unwrap(), Some(true));
    assert!(!incidents.keep(late, false, now_ns).unwrap());
    for _ in 0..2 {
        assert_eq!(send(&incidents, &id, "n1", &other).unwrap(), None);
        assert_eq!(NODES.map(|node| standing(&incidents, node, now_ns)), [0, 1, 1]);
        let incident = incidents.one(&id).unwrap();
        let window = incident.node("n1").unwrap().window.as_ref().unwrap();
        assert_eq!((window.rows, window.gpus.len(), window.bytes), (151, 2, kept.len() as u64));
        let first = incident.first.as_ref().unwrap();
        assert_eq!((first.gpu.as_str(), first.at_ns), ("GPU-n1", AT_NS - SECOND_NS), "it stopped there");
        drop(incidents);
        incidents = open(folder.path());
    }
    let folder = folder.path().join("jobs").join(&id);
    let mut names: Vec<_> = std::fs::read_dir(folder).unwrap().map(|it| it.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["incident.json", "n1.window"]);
    // No rows are an answer, too; and none for ten minutes is the end of a request.
    assert_eq!(send(&incidents, &id, "n2", &[]).unwrap(), Some(true));
    assert_eq!(standing(&incidents, "n3", AT_NS + 10 * MINUTE_NS), 1);
    assert_eq!(standing(&incidents, "n3", AT_NS + 10 * MINUTE_NS + 1), 0);
}

#[test]
fn the_rest_is_asked_for_when_somebody_wants_it_and_again_if_none_came() {
    let folder = tempdir().unwrap();
    let incidents = open(folder.path());
    let id = tell(&incidents, &told("n1", "own", AT_NS), AT_NS);
    assert!(incidents.receive(&id, "n1", WindowPart::Rest).is_err(), "nobody wants it yet");
    send(&incidents, &id, "n1", &[]).unwrap();
    let now_ns = AT_NS + 30 * MINUTE_NS;
    for late_ns in [0, 5 * MINUTE_NS, 20 * MINUTE_NS] {
        incidents.ask_rest(&id, now_ns + late_ns).unwrap();
        let requests = incidents.requests("n1", now_ns + late_ns).now;
        let [request] = &requests[..] else { panic!("{requests:?}") };
        assert_eq!((request.part, request.id.as_str()), (WindowPart::Rest, id.as_str()));
    }
    let mut incoming = incidents.receive(&id, "n1", WindowPart::Rest).unwrap().unwrap();
    let sent = pieces(&[rows(Table::GpuEvents, "GPU-n1", -600..300)]);
    incoming.take(&sent).unwrap();
    assert!(incidents.keep(incoming, true, now_ns).unwrap());
    assert_eq!(standing(&incidents, "n1", now_ns + 20 * MINUTE_NS), 0);
    let path = folder.path().join("jobs").join(&id).join("n1.rest");
    let rows: usize = WindowPieces::open(&path).unwrap().map(|batch| batch.unwrap().rows()).sum();
    assert_eq!((rows, std::fs::read(&path).unwrap() == sent), (900, true));
    assert!(incidents.one(&id).unwrap().node("n1").unwrap().rest.as_ref().unwrap().is_cut);
}

#[test]
fn names_texts_and_times_of_strangers_are_refused() {
    let folder = tempdir().unwrap();
    let incidents = open(folder.path());
    for name in [
        "",
        ".",
        "..",
        ".n1",
        "../n1",
        "a/..",
        "a/b/c",
        "/n1",
        "a/",
        "n 1",
        "n\n1",
        "n1\u{1b}[2J",
        "ä",
        &"n".repeat(201),
    ] {
        assert!(!JobIncidents::is_node(name), "{name:?}");
        for told in [told(name, "own", AT_NS), told("n1", name, AT_NS)] {
            assert!(matches!(incidents.tell(&told, None, AT_NS), Err(JobError::Unfit(_))), "{told:?}");
        }
    }
    let strange = |change: fn(&mut FlightTrigger)| {
        let mut told = told("n1", "own", AT_NS);
        change(&mut told.trigger);
        incidents.tell(&told, Some(&members("train-7", &NODES)), AT_NS)
    };
    assert!(strange(|trigger| trigger.detail = "\u{1b}[31m".to_owned()).is_err());
    assert!(strange(|trigger| trigger.gpu = Some("x".repeat(5_000))).is_err());
    assert!(strange(|trigger| trigger.at_ns = i64::MIN).is_err());
    assert!(strange(|trigger| trigger.at_ns = i64::MAX).is_err());
    // What is no more than odd has a plain id all the same, and a node of an odd name is not asked.
    let odd = JobTrigger {
        trigger: FlightTrigger { kind: "../X y".to_owned(), ..told("n1", "own", AT_NS).trigger },
        ..told("n1", "own", AT_NS)
    };
    let id = incidents.tell(&odd, Some(&members("../../j", &["n1", "../n2"])), AT_NS).unwrap().unwrap();
    assert_eq!(id, "20261130T025459Z-y");
    assert_eq!(incidents.one(&id).unwrap().nodes.len(), 1);
    for (id, node) in [("../..", "n1"), (id.as_str(), "../n2"), (id.as_str(), "incident"), ("", "")] {
        assert!(matches!(incidents.receive(id, node, WindowPart::Window), Err(JobError::Unknown { .. })));
        assert!(matches!(incidents.answer(id, node, WindowPart::Window), Err(JobError::Unknown { .. })));
    }
}

#[test]
fn rows_that_were_not_asked_for_are_refused_and_leave_nothing() {
    let folder = tempdir().unwrap();
    let incidents = open(folder.path());
    let id = tell(&incidents, &told("n1", "own", AT_NS), AT_NS);
    let good = pieces(&[rows(Table::GpuEvents, "GPU-n1", -10..0)]);
    let unfit: [(&str, Vec<u8>); 5] = [
        ("noise", b"this is no piece at all, only text".to_vec()),
        ("cut", good.get(..good.len() - 1).unwrap().to_vec()),
        ("early", pieces(&[rows(Table::GpuEvents, "GPU-n1", -61..0)])),
        ("late", [good.clone(), pieces(&[rows(Table::GpuEvents, "GPU-n1", 30..32)])].concat()),
        ("of another table", pieces(&[rows(Table::SystemEvents, "GPU-n1", -1..0)])),
    ];
    for (what, bytes) in unfit {
        let refused = send(&incidents, &id, "n1", &bytes);
        assert!(matches!(refused, Err(JobError::Unfit(_))), "{what}: {refused:?}");
    }
    let many = good.repeat((1 << 20) / good.len() + 1);
    assert!(matches!(send(&incidents, &id, "n1", &many), Err(JobError::TooLong { .. })), "1 MiB a GPU");
    let two = [many, pieces(&[rows(Table::GpuEvents, "GPU-n1b", -10..0)])].concat();
    let mut endless = incidents.receive(&id, "n1", WindowPart::Window).unwrap().unwrap();
    let mebibyte = vec![0; 1 << 20];
    let refused = (0..65).try_for_each(|_| endless.take(&mebibyte));
    assert!(matches!(refused, Err(JobError::TooLong { .. })), "64 MiB");
    drop(endless);
    let path = folder.path().join("jobs").join(&id);
    assert_eq!(std::fs::read_dir(&path).unwrap().count(), 1, "only what is asked");
    assert_eq!(standing(&incidents, "n1", AT_NS), 1);
    assert_eq!(send(&incidents, &id, "n1", &two).unwrap(), Some(true), "two GPUs have twice the room");
}

#[test]
fn the_oldest_incidents_go_and_a_directory_has_one_keeper() {
    let folder = tempdir().unwrap();
    let incidents = open(folder.path());
    let ids: Vec<String> = (0..5_i64)
        .map(|number| {
            let at_ns = AT_NS + number * 2 * MINUTE_NS;
            tell(&incidents, &told("n1", &format!("own-{number}"), at_ns), at_ns)
        })
        .collect();
    let kept: Vec<String> = incidents.list().iter().rev().map(|incident| incident.id.clone()).collect();
    assert_eq!(kept.as_slice(), ids.get(2..).unwrap());
    assert!(matches!(send(&incidents, ids.first().unwrap(), "n1", &[]), Err(JobError::Unknown { .. })));
    assert!(JobIncidents::open(folder.path(), 3).is_err(), "another process has it");
    drop(incidents);
    // What a killed process has left, and what is not ours.
    let jobs = folder.path().join("jobs");
    std::fs::create_dir(jobs.join("20261130T025459Z-half")).unwrap();
    std::fs::create_dir(jobs.join("mine")).unwrap();
    std::fs::write(jobs.join(ids.get(4).unwrap()).join("7.tmp"), "x").unwrap();
    std::fs::write(jobs.join(ids.get(3).unwrap()).join("incident.json"), "[[[").unwrap();
    let kept: Vec<String> = open(folder.path()).list().iter().map(|incident| incident.id.clone()).collect();
    assert_eq!(kept, [ids.get(4).unwrap().clone(), ids.get(2).unwrap().clone()]);
    assert!(!jobs.join("20261130T025459Z-half").exists() && jobs.join("mine").is_dir());
    assert!(!jobs.join(ids.get(4).unwrap()).join("7.tmp").exists());
    assert!(jobs.join(ids.get(3).unwrap()).is_dir());
}

#[test]
fn a_node_that_tells_again_and_again_pushes_out_its_own() {
    let folder = tempdir().unwrap();
    let incidents = open(folder.path());
    let tell = |node: &str, number: i64| {
        let at_ns = AT_NS + number * 2 * MINUTE_NS;
        let members = members(&format!("job-of-{node}"), &[node]);
        incidents.tell(&told(node, &format!("own-{number}"), at_ns), Some(&members), at_ns).unwrap().unwrap()
    };
    let of_other = tell("n2", 0);
    let ids: Vec<String> = (1..9).map(|number| tell("n1", number)).collect();
    let kept: Vec<String> = incidents.list().iter().rev().map(|incident| incident.id.clone()).collect();
    assert_eq!(kept, [&[of_other], ids.get(6..).unwrap()].concat());
}

#[test]
fn runs_of_one_name_on_two_hosts_are_two_incidents() {
    let folder = tempdir().unwrap();
    let incidents = open(folder.path());
    let of = |node: &str| {
        let run = JobMembers { job: "//run:telemetry".to_owned(), nodes: [node.to_owned()].into() };
        incidents.tell(&told(node, "own", AT_NS), Some(&run), AT_NS).unwrap().unwrap()
    };
    assert_ne!(of("n1"), of("n2"));
}

#[test]
fn an_incident_of_very_many_gpus_is_there_after_a_restart() {
    let folder = tempdir().unwrap();
    let incidents = open(folder.path());
    let nodes: Vec<String> = (0..40).map(|number| format!("n{number}")).collect();
    let names: Vec<&str> = nodes.iter().map(String::as_str).collect();
    let of_all = members("train-7", &names);
    let id = incidents.tell(&told("n0", "own", AT_NS), Some(&of_all), AT_NS).unwrap().unwrap();
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    for number in 0..512 {
        let uuid = format!("GPU-{number:0>200}");
        let who = builder.intern(&Identity::default().with(IdentityColumn::Uuid, &uuid).unwrap());
        builder.row_at(AT_NS, 0, who);
    }
    let sent = pieces(&[builder.finish(Origin::default(), 1).unwrap()]);
    for node in &nodes {
        assert_eq!(send(&incidents, &id, node, &sent).unwrap(), Some(true));
    }
    let about = folder.path().join("jobs").join(&id).join("incident.json");
    assert!(std::fs::metadata(about).unwrap().len() > 4 << 20, "longer than that of a node may be");
    let before = incidents.list();
    drop(incidents);
    assert_eq!(open(folder.path()).list(), before);
}

#[test]
fn the_first_victim_is_known_however_late_its_node_tells() {
    let folder = tempdir().unwrap();
    let incidents = open(folder.path());
    let mut id = String::new();
    for number in 0..100_i64 {
        let told = told("n1", &format!("own-{number}"), AT_NS + number * SECOND_NS / 4);
        id = tell(&incidents, &told, AT_NS + 30 * SECOND_NS);
    }
    assert_eq!(tell(&incidents, &told("n3", "own", AT_NS - SECOND_NS), AT_NS + 30 * SECOND_NS), id);
    let incident = incidents.one(&id).unwrap();
    let first = incident.first.as_ref().unwrap();
    assert_eq!((first.node.as_str(), first.at_ns), ("n3", AT_NS - SECOND_NS));
    assert_eq!((incident.told, incident.triggers.first().unwrap().trigger.at_ns), (101, AT_NS));
}

/// A node answers with these rows. Its clock is so far ahead, and request and answer take so long each, in milliseconds.
fn answer_timed(
    incidents: &JobIncidents,
    id: &str,
    (node, rows): (&str, &[u8]),
    (ahead_ms, way_ms): (i64, i64),
) {
    let mut incoming = incidents.receive(id, node, WindowPart::Window).unwrap().unwrap();
    incoming.take(rows).unwrap();
    let heard_ns = AT_NS + (way_ms + ahead_ms) * 1_000_000;
    let came_ns = AT_NS + SECOND_NS + 2 * way_ms * 1_000_000;
    incoming.timed(RoundTrip { asked_ns: AT_NS, heard_ns, answered_ns: heard_ns + SECOND_NS, came_ns });
    assert!(incidents.keep(incoming, false, came_ns).unwrap());
}

#[test]
fn which_gpu_failed_first_is_said_as_far_as_the_clocks_of_the_nodes_are_known() {
    let apart =
        "GPU-n2 of n2 failed 2.0 ms after it, and by their clocks and readings that is known to 10.1 ms";
    let unknown = "how far the clocks of n1 and n2 are apart is not known";
    // By its clock the GPU of n2 failed 40 ms after that of n1.
    for (clocks, first, doubt) in [
        (Some((0, 5)), "n1", None),
        (Some((100, 5)), "n2", None),
        (Some((38, 5)), "n1", Some(apart)),
        (Some((0, 25)), "n1", Some("known to 50.1 ms")),
        (None, "n1", Some(unknown)),
    ] {
        let folder = tempdir().unwrap();
        let incidents = open(folder.path());
        let id = tell(&incidents, &told("n1", "own", AT_NS), AT_NS + SECOND_NS);
        let later = told("n2", "own", AT_NS + 40_000_000);
        assert_eq!(tell(&incidents, &later, AT_NS + SECOND_NS), id);
        assert_eq!(incidents.one(&id).unwrap().offset, "not known");
        if let Some((ahead_ms, way_ms)) = clocks {
            answer_timed(&incidents, &id, ("n1", &[]), (0, way_ms));
            answer_timed(&incidents, &id, ("n2", &[]), (ahead_ms, way_ms));
            assert_eq!(incidents.one(&id).unwrap().offset, "known of 2 of 3 nodes");
        }
        let found = incidents.one(&id).unwrap().first.clone().unwrap();
        assert_eq!(found.node, first, "{clocks:?}");
        match (&found.doubt, doubt) {
            (Some(found), Some(doubt)) => {
                assert!(
                    found.starts_with("cannot tell which came first: ") && found.contains(doubt),
                    "{found}"
                );
            }
            (found, doubt) => assert_eq!(found.as_deref(), doubt, "{clocks:?}"),
        }
        let before = incidents.list();
        drop(incidents);
        assert_eq!(open(folder.path()).list(), before, "a restart knows the same");
    }
}

#[test]
fn which_of_two_gpus_failed_first_between_their_readings_is_not_known() {
    for (later_ms, doubt) in [(1_500, Some("failed 1500.0 ms after it")), (2_500, None)] {
        let folder = tempdir().unwrap();
        let incidents = open(folder.path());
        let id = tell(&incidents, &told("n1", "own", AT_NS), AT_NS + 3 * SECOND_NS);
        let later = told("n2", "own", AT_NS + later_ms * 1_000_000);
        assert_eq!(tell(&incidents, &later, AT_NS + 3 * SECOND_NS), id);
        for node in ["n1", "n2"] {
            // Each is read once a second.
            let rows = pieces(&[rows(Table::GpuEvents, &format!("GPU-{node}"), -10..1)]);
            answer_timed(&incidents, &id, (node, &rows), (0, 5));
        }
        let found = incidents.one(&id).unwrap().first.clone().unwrap();
        assert_eq!(found.node, "n1");
        match (&found.doubt, doubt) {
            (Some(found), Some(doubt)) => {
                assert!(found.contains(doubt) && found.ends_with("known to 2010.1 ms"), "{found}");
            }
            (found, doubt) => assert_eq!(found.as_deref(), doubt),
        }
    }
}

#[test]
fn a_gpu_that_is_read_rarely_has_not_failed_between_two_values() {
    let folder = tempdir().unwrap();
    let incidents = open(folder.path());
    let mut of_node = told("n1", "own", AT_NS);
    of_node.trigger.gpu = None;
    let id = tell(&incidents, &of_node, AT_NS);
    let often = rows(Table::GpuEvents, "GPU-often", -60..31);
    let rarely = [-60, -40, -20].map(|second| rows(Table::GpuEvents, "GPU-rarely", second..second + 1));
    let late = rows(Table::GpuEvents, "GPU-rarely", 0..1);
    let sent = [pieces(std::slice::from_ref(&often)), pieces(&rarely), pieces(&[late])].concat();
    assert_eq!(send(&incidents, &id, "n1", &sent).unwrap(), Some(true));
    assert_eq!(incidents.one(&id).unwrap().first, None);
    let sent = [pieces(&[often]), pieces(&rarely)].concat();
    assert_eq!(send(&incidents, &id, "n2", &sent).unwrap(), Some(true));
    let first = incidents.one(&id).unwrap().first.clone().unwrap();
    assert_eq!((first.gpu.as_str(), first.at_ns), ("GPU-rarely", AT_NS - 20 * SECOND_NS));
}

#[test]
fn what_somebody_fetches_waits_for_the_window_of_a_new_trigger() {
    let folder = tempdir().unwrap();
    let incidents = open(folder.path());
    let now_ns = AT_NS + 10 * MINUTE_NS;
    let ids = [0, 2].map(|minutes| {
        let at_ns = AT_NS + minutes * MINUTE_NS;
        tell(&incidents, &told("n1", &format!("own-{minutes}"), at_ns), at_ns)
    });
    for id in &ids {
        incidents.ask_rest(id, now_ns).unwrap();
    }
    let id = tell(&incidents, &told("n1", "own", now_ns), now_ns);
    let asked = |minutes: i64| {
        let requests = incidents.requests("n1", now_ns + minutes * MINUTE_NS).now;
        let (window, rests): (Vec<_>, Vec<_>) =
            requests.into_iter().partition(|request| request.part == WindowPart::Window);
        (window.iter().any(|request| request.id == id), rests.len())
    };
    assert_eq!([0, 1, 2].map(asked), [(false, 1), (true, 1), (true, 2)], "one a minute, the window second");
}
