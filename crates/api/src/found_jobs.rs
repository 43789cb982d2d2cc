//! Findings as triggers: when one begins that is about a job, its nodes are asked for what was then.

use std::sync::Arc;

use gpuvitals_analysis::findings::{FleetFinding, Subject};
use gpuvitals_core::causes;
use gpuvitals_core::history::Fleet;
use gpuvitals_flight::{FlightTrigger, JobMembers, JobTrigger};

use crate::api::Api;
use crate::error::ApiError;
use crate::job_members::FreshGpus;
use crate::jobs_kept::on_disk;
use crate::watch::Judgement;

/// Looks at each judgement, for ever.
pub(crate) async fn follow(api: &Api) {
    let mut judgements = api.judgements();
    while judgements.changed().await.is_ok() {
        let judgement = judgements.borrow_and_update().clone();
        if let Some(judgement) = judgement {
            ask(api, &judgement).await;
        }
    }
}

/// Asks the nodes of the jobs that findings are about which have begun since the look before. A node that listens is among them.
async fn ask(api: &Api, judgement: &Judgement) {
    let Ok(jobs) = api.jobs() else { return };
    let begun = jobs.begun(judgement);
    if begun.is_empty() {
        return;
    }
    let fleet = match api.history().fleet().await {
        Ok(part) => part.answer,
        Err(error) => {
            tracing::debug!(reason = causes(&error), "the jobs of findings cannot be looked up");
            for one in begun {
                jobs.look_again(one);
            }
            return;
        }
    };
    for (finding, at_ns) in begun {
        let mut is_told = true;
        for members in jobs_of(finding, &fleet, at_ns) {
            is_told &= jobs.is_heard(&members) && ask_job(api, (finding, at_ns), members).await;
        }
        if !is_told {
            jobs.look_again((finding, at_ns));
        }
    }
}

/// Asks the nodes of a job for a finding; whether they will be told.
async fn ask_job(api: &Api, (finding, at_ns): (&FleetFinding, i64), members: JobMembers) -> bool {
    match tell(api, found(finding, at_ns), members).await {
        Ok(id) => {
            let finding = finding.id();
            tracing::info!(id, finding, "all nodes of a job are asked for a finding");
            true
        }
        Err(error) => {
            tracing::warn!(reason = causes(&error), "nodes cannot be asked for a finding");
            false
        }
    }
}

async fn tell(api: &Api, found: JobTrigger, members: JobMembers) -> Result<Option<String>, ApiError> {
    let (jobs, now_ns) = (api.jobs()?, api.config().clock.now_ns());
    let incidents = Arc::clone(&jobs.incidents);
    let told = on_disk(move || incidents.find(&found, &members, now_ns)).await;
    jobs.changed();
    told
}

/// The jobs that have the GPUs that a finding is about.
fn jobs_of(finding: &FleetFinding, fleet: &Fleet, at_ns: i64) -> Vec<JobMembers> {
    FreshGpus::of(fleet, at_ns).jobs_of(finding.reach.gpus.iter().filter_map(|key| fleet.get(key)))
}

/// What a finding is as a trigger.
fn found(finding: &FleetFinding, at_ns: i64) -> JobTrigger {
    let gpu = match &finding.subject {
        Subject::Gpu(gpu) => Some(gpu.to_string()),
        _ => None,
    };
    let trigger = FlightTrigger {
        kind: "finding".to_owned(),
        gpu,
        code: None,
        detail: finding.sentence.clone(),
        rule: Some(finding.kind.id.to_owned()),
        at_ns,
    };
    JobTrigger::of_gateway(format!("{} {at_ns}", finding.id()), trigger)
}
