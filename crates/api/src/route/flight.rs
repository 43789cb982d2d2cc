//! `/api/v1/flight/`: incidents of whole jobs, of which each node of the job keeps a part in its flight recorder.
//!
//! Every path needs the scope `flight`. A name of a node is 1 to 253 of `[A-Za-z0-9._-]` and begins with no dot. Times are
//! nanoseconds UTC since 1970, in fields that end in `_ns`.
//!
//! | request | body | answer |
//! |---|---|---|
//! | `GET requests?node=NODE` | | server-sent events, see below |
//! | `POST requests` | [`Told`]: `{"node", "incident", "trigger"}` | `{"id"}`: the job's incident; null: no job is known there (tell again) |
//! | `POST requests` | `{"rest": ID}` | `{"id"}`: all nodes of it are asked for the rest |
//! | `GET incidents` | | `{"incidents": [JobIncident]}`, the newest first |
//! | `GET incidents/{id}` | | a `JobIncident` of `gpuvitals_flight` |
//! | `POST incidents/{id}/nodes/{node}[?part=window\|rest][&cut=true]` | pieces | `{"is_new"}`: false for a second answer, which is left unread |
//! | `GET incidents/{id}/nodes/{node}[?part=window\|rest]` | | pieces, as they came |
//!
//! - `incident` of a told trigger is the id that the node's own recorder gave it; `trigger` is a `FlightTrigger` as JSON: `kind`,
//!   `gpu`, `code`, `detail`, `rule`, `at_ns`. Both bodies are `application/json`.
//! - Pieces are `application/octet-stream`: again and again `length u32, little-endian | gpuvitals_record::pack(batch)`, batches of
//!   `gpu_events` with times within `asked`. No piece at all is an answer, too: the node has no rows. They are sent without
//!   `content-length` (chunked), as the listener refuses a longer announced body. `cut=true` says that rows were left out to
//!   fit into 1 MiB a GPU; a window is 64 MiB at most, and so is a rest. Without `part` it is the window.
//! - An event is `event: request`, `id: ID/PART`, and as data one line of JSON: [`FlightAsked`]:
//!   `{"id", "part": "window"|"rest", "asked": {"from_ns", "to_ns"}, "trigger": {FlightTrigger}, "by": NODE}`. For a window `asked`
//!   is 60 s before to 30 s after the trigger: an answer waits until it is over. For a rest `from_ns` is an hour before and `to_ns`
//!   ten minutes after it, and the node sends what it has of it. All that stand for the node come when a stream begins, and each
//!   comes once a stream; `:` comments come every 15 s. `by` is the node that told of it.
//! - Statuses: 400 `bad_body`, `bad_parameter`; 404 `unknown_incident` (also: the node is not asked for this part); 413
//!   `body_too_large`; 503 `unavailable` (no directory here, or its disk), `too_many_streams`.
