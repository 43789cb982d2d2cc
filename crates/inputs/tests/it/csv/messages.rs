//! Rows as messages under the file's own names, and back.

use std::path::Path;

use gpuvitals_core::ports::{Poll, Source as _};
use gpuvitals_core::{Batch, Origin, message};
use gpuvitals_inputs::csv::{CsvInput, CsvSource};
use gpuvitals_inputs::replay::ReplayConfig;
use serde_json::{Value as Json, json};

use super::reading::{NOW, POLLS_MAX, config, reader, reports, rows};

fn open(input: CsvInput) -> CsvSource {
    CsvSource::open(input, ReplayConfig { messages: true, batch_rows: 7, ..config() }, NOW).unwrap()
}

/// Every batch up to the end, and its messages.
fn drain(source: &mut CsvSource) -> (Vec<Batch>, Vec<Json>) {
    let (mut batches, mut messages) = (Vec::new(), Vec::new());
    for _ in 0..POLLS_MAX {
        match source.poll(NOW).unwrap() {
            Poll::Ready(batch) => {
                let own = source.messages().unwrap();
                assert_eq!(own.len(), batch.rows(), "a message is a row");
                messages.extend(own);
                batches.push(batch);
            }
            Poll::NotBefore(_) => {}
            Poll::End => return (batches, messages),
        }
    }
    panic!("the end of the input never came");
}

/// The rows that a collector makes of messages.
fn received(messages: &[Json]) -> Vec<String> {
    let mut all = Vec::new();
    for messages in messages.chunks(100) {
        let origin = Origin { node: "here".into(), started_ns: NOW };
        let parsed = message::parse(&serde_json::to_vec(messages).unwrap(), origin, 1).unwrap();
        assert!(parsed.refused.is_empty(), "{:?}", parsed.refused);
        assert!(parsed.invalid.is_empty(), "{:?}", parsed.invalid);
        all.extend(rows(&parsed.batch.into_iter().collect::<Vec<_>>()));
    }
    all.into_iter().map(|row| row.replace(" source=json", " source=csv")).collect()
}

fn assert_comes_back(input: CsvInput, name: &str) -> Vec<Json> {
    let (batches, messages) = drain(&mut open(input));
    assert!(!messages.is_empty(), "{name}");
    assert_eq!(received(&messages), rows(&batches), "{name}");
    messages
}

#[test]
fn a_message_has_the_names_and_values_of_the_file() {
    let text = "timestamp,gpu_id,temperature,utilization,memory_used,power.draw [mW],performance_state,rack,slot\n\
                2026-01-01T00:00:00Z,gpu_0,50,97.5,1024.75,300123,P0,r1,7\n\
                2026-01-01T00:00:01Z,gpu_1,N/A,0,-5,,P8,,\n\
                2026-01-01T00:00:02Z,gpu_1,,,\n\
                2026-01-01T00:00:03Z,007,51.25 C,,,,,,\n";
    let mut source = open(reader(text.as_bytes().to_vec()));
    let (batches, messages) = drain(&mut source);
    assert_eq!(
        messages,
        [
            json!({"timestamp": "2026-01-01T00:00:00Z", "fields": {
                "gpu_id": "gpu_0", "temperature": 50, "utilization": 97.5, "memory_used": 1024.75, "power.draw [mW]": 300_123,
                "performance_state": "P0", "rack": "r1", "slot": 7,
            }}),
            json!({"timestamp": "2026-01-01T00:00:01Z", "fields": {
                "gpu_id": "gpu_1", "utilization": 0, "performance_state": "P8",
            }}),
            json!({"timestamp": "2026-01-01T00:00:03Z", "fields": {"gpu_id": "007", "node": "rows", "temperature": "51.25 C"}}),
        ]
    );
    assert_eq!(
        reports(&mut source),
        [
            "rows.csv: line 3: column memory_used: memory_used_mb is -5, outside 0 to 67108864",
            "rows.csv: line 4: 5 fields where the header has 9",
        ],
        "bad values and bad rows are counted and reported as ever"
    );
    let rows = rows(&batches);
    assert_eq!(received(&messages), rows);
    assert_eq!(
        rows,
        [
            "2026-01-01T00:00:00Z gpu_0 memory_used_mb=1025 performance_state=0 power_w=300.123 temperature_c=50 \
             utilization_pct=97.5 source=csv rack=r1 slot=7",
            "2026-01-01T00:00:01Z gpu_1 performance_state=8 utilization_pct=0 source=csv",
            "2026-01-01T00:00:03Z rows:gpu7 temperature_c=51.25 gpu=7 node=rows source=csv",
        ],
        "the table has its own units and types"
    );
}

#[test]
fn a_row_of_the_long_form_is_one_message_with_dcgms_names() {
    let text = "timestamp,metric_name,gpu_id,device,uuid,Hostname,value,labels_raw\n\
                1700000000,DCGM_FI_DEV_GPU_TEMP,0,nvidia0,GPU-5fd4f087-86f3-7a43-b711-4771313afc50,n1,63,\
                \"DCGM_FI_DRIVER_VERSION=\"\"535.129.03\"\",gpu=\"\"0\"\",rack=\"\"r1\"\"\"\n\
                1700000000,rack_fan,0,nvidia0,GPU-5fd4f087-86f3-7a43-b711-4771313afc50,n1,4.5,\
                \"DCGM_FI_DRIVER_VERSION=\"\"535.129.03\"\",gpu=\"\"0\"\",rack=\"\"r1\"\"\"\n\
                1700000000,DCGM_FI_DEV_POWER_USAGE,0,nvidia0,GPU-5fd4f087-86f3-7a43-b711-4771313afc50,n1,156.596,\
                \"DCGM_FI_DRIVER_VERSION=\"\"535.129.03\"\",gpu=\"\"0\"\",rack=\"\"r1\"\"\"\n";
    let messages = assert_comes_back(reader(text.as_bytes().to_vec()), "the long form");
    assert_eq!(
        messages,
        [json!({"timestamp": "2023-11-14T22:13:20Z", "fields": {
            "gpu_id": 0, "device": "nvidia0", "uuid": "GPU-5fd4f087-86f3-7a43-b711-4771313afc50", "Hostname": "n1",
            "DCGM_FI_DRIVER_VERSION": "535.129.03", "label_rack": "r1", "DCGM_FI_DEV_GPU_TEMP": 63, "rack_fan": 4.5,
            "DCGM_FI_DEV_POWER_USAGE": 156.596,
        }})]
    );
}

#[test]
fn labels_stay_texts_whatever_they_look_like() {
    let text = "timestamp,metric_name,gpu_id,uuid,value,labels_raw\n\
                1700000000,DCGM_FI_DEV_GPU_TEMP,0,GPU-5fd4f087-86f3-7a43-b711-4771313afc50,63,\
                \"rack=\"\"007\"\",row=\"\"1e3\"\"\"\n";
    let messages = assert_comes_back(reader(text.as_bytes().to_vec()), "labels");
    let fields = &messages[0]["fields"];
    assert_eq!((&fields["label_rack"], &fields["label_row"]), (&json!("007"), &json!("1e3")));
}

#[test]
fn what_nvidia_smi_wrote_on_real_machines_comes_back_as_the_same_rows() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/nvidia/captures");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "csv") {
            assert_comes_back(CsvInput::from(path.as_path()), &path.display().to_string());
            seen += 1;
        }
    }
    assert!(seen > 3, "{seen} captures");
}

#[test]
fn without_the_wish_there_are_no_messages() {
    let mut source = super::reading::open("timestamp,gpu_id,temperature\n1700000000,gpu_0,50\n");
    assert!(matches!(source.poll(NOW).unwrap(), Poll::NotBefore(_) | Poll::Ready(_)));
    assert!(source.messages().is_none());
}

#[test]
fn what_a_file_brings_is_the_files() {
    // A store takes so many new names of columns from one node or file: rows without a node are their file's.
    let named = |name: &str| {
        let reader = Box::new(std::io::Cursor::new("gpu_id,power_w,my column\nleft,1,2\n"));
        let input = CsvInput::Reader { name: name.to_owned(), reader };
        let (batches, _) = drain(&mut open(input));
        batches[0].origin().node.to_string()
    };
    assert_eq!((named("logs/run-1.csv.gz"), named("run-2.csv")), ("run-1".to_owned(), "run-2".to_owned()));
}
