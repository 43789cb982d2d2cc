//! Ending a group.
#![expect(clippy::indexing_slicing, reason = "a key that JSON lacks reads as null")]

use gpuvitals_core::quantity::counted;
use serde_json::json;

use super::admin::Admin;
use super::answer::{confirm, number};
use crate::failure::{Exit, Failure};
use crate::terminal::{self, PrintForm};

/// Ends it, after a question.
///
/// # Errors
/// If the group is missing; if the user cannot be asked, or declines; if the queue cannot be reached, or
/// refuses.
pub(super) fn remove(
    admin: &Admin,
    topic: &str,
    group: &str,
    yes: bool,
    form: PrintForm,
) -> Result<(), Failure> {
    let held = admin.topic(topic)?;
    let numbers = &held["groups"][group];
    if numbers.is_null() {
        let text = format!("{topic} has no group {group}; gpuvitals queue stats {topic} lists them");
        return Err(Failure::new(Exit::Data, text));
    }
    if !yes {
        let lag = counted(number(numbers, "lag")?, "message");
        // NATS does not know the members of a group.
        let members = numbers["members"].as_u64().map(|members| counted(members, "member") + " and ");
        let members = members.unwrap_or_default();
        confirm(&format!("end group {group} of {topic}, which has {members}{lag} to acknowledge?"))?;
    }
    admin.remove_group(topic, group)?;
    terminal::print(&match form {
        PrintForm::Json => format!("{:#}\n", json!({ "topic": topic, "group": group })),
        PrintForm::Text => format!("group {group} of {topic} is gone\n"),
    })
}
