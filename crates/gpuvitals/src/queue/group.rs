//! A group that nobody reads for any more.
#![expect(clippy::indexing_slicing, reason = "a key that JSON lacks reads as null")]

use serde_json::json;

use super::admin::Admin;
use super::{confirm, count};
use crate::failure::{Exit, Failure};

/// Ends it, after asking.
///
/// # Errors
/// When there is no such group; when nobody can be asked, or says no; when the queue cannot be reached, or refuses.
pub(super) fn remove(admin: &Admin, topic: &str, group: &str, yes: bool, json: bool) -> Result<(), Failure> {
    let held = admin.topic(topic)?;
    let numbers = &held["groups"][group];
    if numbers.is_null() {
        let text = format!("{topic} has no group {group}; gpuvitals queue stats {topic} lists them");
        return Err(Failure::new(Exit::Data, text));
    }
    if !yes {
        // NATS does not know the members of a group.
        let number = |key: &str, one: &str| numbers[key].as_u64().map(|number| count(number, one));
        let known = [number("members", "member"), number("lag", "message")];
        let known: Vec<String> = known.into_iter().flatten().collect();
        confirm(&format!("end group {group} of {topic}, which has {} to acknowledge?", known.join(" and ")))?;
    }
    admin.remove_group(topic, group)?;
    crate::print(&if json {
        format!("{:#}\n", json!({ "topic": topic, "group": group }))
    } else {
        format!("group {group} of {topic} is gone\n")
    })
}
