//! What a hook's message says of a job. The texts are of users: without control characters, and none is long.

use gpuvitals_core::BatchBuilder;
use gpuvitals_core::batch::{RowId, Value};
use gpuvitals_core::usage::RUN_HOLDER;
use gpuvitals_sources::attribution::slurm::{is_uuid, job_number};

use super::asked;
use super::message::{
    ASKED_GPUS, HookMessage, JobHook, LIST_LEN_MAX, RUN_AGE, RUN_IS_OVER, RUN_MARK_AGE, RUN_PROCESS,
};

/// Most bytes of a name.
const NAME_LEN_MAX: usize = 256;
/// Most bytes of the name of a run, which is in every row of its GPUs.
const RUN_NAME_LEN_MAX: usize = 128;
/// Most bytes of a list of hosts.
const HOSTS_LEN_MAX: usize = 2048;

/// What is said of a job; what is not known is none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct JobFacts {
    pub uid: Option<u32>,
    /// The GPUs on this node, between commas.
    pub gpus: Option<String>,
    /// How many GPUs were asked for on all hosts.
    pub gpus_asked: Option<i64>,
    /// Columns of the table with their texts, in the order of [`TEXTS`].
    texts: [Option<String>; TEXTS.len()],
}

/// Texts of a job: their columns, and their variables.
const TEXTS: [(&str, &str, usize); 6] = [
    ("job_name", "SLURM_JOB_NAME", NAME_LEN_MAX),
    ("job_user", "SLURM_JOB_USER", NAME_LEN_MAX),
    ("account", "SLURM_JOB_ACCOUNT", NAME_LEN_MAX),
    ("queue", "SLURM_JOB_PARTITION", NAME_LEN_MAX),
    ("hosts", "SLURM_JOB_NODELIST", HOSTS_LEN_MAX),
    (LABELS, "SLURM_JOB_COMMENT", LABELS_LEN_MAX),
];

/// The column of labels: of a comment what is `KEY=VALUE`, and nothing else that its user wrote.
const LABELS: &str = "labels";
/// Most labels of a job, and most bytes of a key and of a value.
const LABELS_MAX: usize = 16;
const LABEL_LEN_MAX: usize = 63;
/// So all of them have at most so many bytes, with = and comma.
const LABELS_LEN_MAX: usize = LABELS_MAX * 2 * (LABEL_LEN_MAX + 1);

/// What a message is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ToldJob {
    pub hook: JobHook,
    /// Number of the job, or `run:NAME`.
    pub id: String,
    /// Whether the job is over.
    pub is_over: bool,
    pub facts: JobFacts,
    pub array_task: Option<String>,
    pub exit_code: Option<String>,
    /// Process of the recorder that tells of a run.
    pub process: Option<u32>,
    /// Time since a run began.
    pub age_ns: Option<i64>,
    /// Time since its last mark.
    pub mark_age_ns: Option<i64>,
}

impl ToldJob {
    /// Of a message; none if what it calls a job has no number, and no name of a run.
    pub(crate) fn of(message: &HookMessage) -> Option<Self> {
        let id = message.get("SLURM_JOB_ID")?;
        let id = if message.hook == JobHook::Run { run_id(id)? } else { job_number(id)? };
        let is_over = match message.hook {
            JobHook::Prolog => false,
            JobHook::Epilog => true,
            // Both scripts of the controller tell by one name; only a job that is over has a code.
            JobHook::Controller => exit_code(message).is_some(),
            JobHook::Run => message.get(RUN_IS_OVER).is_some(),
        };
        let of_run = |name: &str| message.get(name).filter(|_| message.hook == JobHook::Run);
        let age_ns =
            |name: &str| of_run(name).and_then(|age| age.parse::<i64>().ok()).filter(|age_ns| *age_ns >= 0);
        let name = |name: &str| message.get(name).and_then(|text| cleaned(text, NAME_LEN_MAX));
        let task = |array: String| Some(format!("{array}_{}", name("SLURM_ARRAY_TASK_ID")?));
        Some(Self {
            hook: message.hook,
            id,
            is_over,
            facts: JobFacts::of(message),
            array_task: name("SLURM_ARRAY_JOB_ID").and_then(task),
            exit_code: exit_code(message).filter(|_| is_over),
            process: of_run(RUN_PROCESS).and_then(|process| process.parse().ok()),
            age_ns: age_ns(RUN_AGE),
            mark_age_ns: age_ns(RUN_MARK_AGE),
        })
    }

    /// By which it is told apart from others: two recordings may have one name.
    pub(crate) fn key(&self) -> (JobHook, String) {
        let name = self.process.map_or_else(|| self.id.clone(), |process| format!("{} {process}", self.id));
        (self.hook, name)
    }

    /// The message that tells the same of a job that runs.
    pub(crate) fn message(&self) -> Option<HookMessage> {
        let array = self.array_task.as_deref().and_then(|task| task.split_once('_'));
        let variable = |name: &str| match name {
            "SLURM_JOB_ID" => Some(self.id.clone()),
            "SLURM_JOB_UID" => self.facts.uid.map(|uid| uid.to_string()),
            // Who reads it takes UUIDs from the one and numbers from the other.
            "SLURM_JOB_GPUS" | "CUDA_VISIBLE_DEVICES" => self.facts.gpus.clone(),
            "SLURM_ARRAY_JOB_ID" => array.map(|(array, _)| array.to_owned()),
            "SLURM_ARRAY_TASK_ID" => array.map(|(_, task)| task.to_owned()),
            ASKED_GPUS => self.facts.gpus_asked.map(|gpus| gpus.to_string()),
            name => self.facts.text(name).map(str::to_owned),
        };
        HookMessage::of(self.hook, variable).ok()
    }
}

impl JobFacts {
    fn of(message: &HookMessage) -> Self {
        Self {
            uid: message.get("SLURM_JOB_UID").and_then(|uid| uid.parse().ok()),
            gpus: gpus(message),
            gpus_asked: message.get(ASKED_GPUS).and_then(asked::in_counts),
            texts: TEXTS.map(|(column, variable, len_max)| {
                let text = message.get(variable)?;
                if column == LABELS { labels(text) } else { cleaned(text, len_max) }
            }),
        }
    }

    /// The text of a variable.
    fn text(&self, name: &str) -> Option<&str> {
        let mut texts = TEXTS.iter().zip(&self.texts);
        texts.find(|((_, variable, _), _)| *variable == name)?.1.as_deref()
    }

    /// The GPUs on this node as Slurm calls them, one by one.
    pub(crate) fn gpu_names(&self) -> impl Iterator<Item = &str> {
        let names = self.gpus.as_deref().unwrap_or_default().split(',').map(str::trim);
        names.filter(|name| !name.is_empty())
    }

    /// The same with what is newly known.
    pub(crate) fn and(self, newer: Self) -> Self {
        let mut older = self.texts.into_iter();
        let texts = newer.texts.map(|text| {
            let before = older.next().flatten();
            text.or(before)
        });
        Self {
            uid: newer.uid.or(self.uid),
            gpus: newer.gpus.or(self.gpus),
            gpus_asked: newer.gpus_asked.or(self.gpus_asked),
            texts,
        }
    }

    /// Writes it into a row. A value that the table refuses is left out: the rest is worth more.
    pub(crate) fn write(&self, builder: &mut BatchBuilder, row: RowId) {
        let texts = TEXTS.iter().zip(&self.texts).map(|((column, ..), text)| (*column, text));
        for (column, text) in texts.chain([("gpus", &self.gpus)]) {
            if let Some(text) = text {
                let _refused = builder.set_extra_text(row, column, text);
            }
        }
        for (column, number) in [("uid", self.uid.map(i64::from)), ("gpus_asked", self.gpus_asked)] {
            if let Some(number) = number {
                let _refused = builder.set_extra(row, column, Value::Int(number));
            }
        }
    }
}

/// The GPUs of a job on this node: by UUIDs where it is shown them, else by their numbers on the node. What a job is shown as numbers may
/// count only its own. A list that is too long was cut when it was read, between two names.
fn gpus(message: &HookMessage) -> Option<String> {
    let shown =
        message.get("CUDA_VISIBLE_DEVICES").filter(|list| list.split(',').any(|gpu| is_uuid(gpu.trim())));
    cleaned(shown.or_else(|| message.get("SLURM_JOB_GPUS"))?, LIST_LEN_MAX)
}

/// `run:NAME` of a run.
fn run_id(text: &str) -> Option<String> {
    let name = cleaned(text.strip_prefix(RUN_HOLDER)?, RUN_NAME_LEN_MAX)?;
    Some(format!("{RUN_HOLDER}{name}"))
}

/// How the job ended, as Slurm writes it: `CODE:SIGNAL`.
fn exit_code(message: &HookMessage) -> Option<String> {
    let is_pair = |text: &&str| {
        let number = |text: &str| text.parse::<u32>().is_ok();
        text.split_once(':').is_some_and(|(code, signal)| number(code) && number(signal))
    };
    let pair = message.get("SLURM_JOB_EXIT_CODE2").filter(is_pair).map(str::to_owned);
    // As a process is waited for: the code times 256, or the signal.
    let waited = || {
        let status: u32 = message.get("SLURM_JOB_EXIT_CODE")?.parse().ok()?;
        Some(format!("{}:{}", (status >> 8) & 0xff, status & 0x7f))
    };
    pair.or_else(waited)
}

/// The labels in a comment, between commas: pairs between commas, semicolons or blanks. None if there are none.
fn labels(comment: &str) -> Option<String> {
    let is_key = |key: &str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._/-".contains(&byte);
        !key.is_empty() && key.len() <= LABEL_LEN_MAX && key.bytes().all(is_plain)
    };
    let is_value = |value: &str| {
        !value.is_empty() && value.len() <= LABEL_LEN_MAX && !value.chars().any(char::is_control)
    };
    let words =
        comment.split(|character: char| character == ',' || character == ';' || character.is_whitespace());
    let pairs =
        words.filter(|word| word.split_once('=').is_some_and(|(key, value)| is_key(key) && is_value(value)));
    let pairs: Vec<&str> = pairs.take(LABELS_MAX).collect();
    Some(pairs.join(",")).filter(|pairs| !pairs.is_empty())
}

/// A text without control characters, cut where it is too long; none if nothing is left.
fn cleaned(text: &str, len_max: usize) -> Option<String> {
    let mut text: String = text.chars().filter(|character| !character.is_control()).collect();
    text.truncate(text.floor_char_boundary(len_max));
    Some(text).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(hook: JobHook, environment: &[(&str, &str)]) -> Option<ToldJob> {
        let variable = |name: &str| {
            environment.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        ToldJob::of(&HookMessage::of(hook, variable).unwrap())
    }

    fn text(facts: &JobFacts, column: &str) -> Option<String> {
        let at = TEXTS.iter().position(|(known, ..)| *known == column).unwrap();
        facts.texts[at].clone()
    }

    /// What Prolog and Epilog of Slurm 22.05.8 were seen to have: no account, no name, no array.
    const PROLOG: [(&str, &str); 9] = [
        ("SLURM_JOB_ID", "11"),
        ("SLURM_JOB_UID", "65534"),
        ("SLURM_JOB_USER", "nobody"),
        ("SLURM_JOB_GID", "65534"),
        ("SLURM_JOB_GPUS", "1,3"),
        ("CUDA_VISIBLE_DEVICES", "1,3"),
        ("ROCR_VISIBLE_DEVICES", "1,3"),
        ("SLURM_JOB_PARTITION", "gpu"),
        ("SLURMD_NODENAME", "vm"),
    ];

    /// What PrologSlurmctld was seen to have: no GPUs.
    const CONTROLLER: [(&str, &str); 7] = [
        ("SLURM_JOB_ID", "11"),
        ("SLURM_JOB_UID", "65534"),
        ("SLURM_JOB_USER", "nobody"),
        ("SLURM_JOB_ACCOUNT", "ml"),
        ("SLURM_JOB_NAME", "train"),
        ("SLURM_JOB_NODELIST", "vm"),
        ("SLURM_ARRAY_JOB_ID", "8"),
    ];

    #[test]
    fn each_hook_says_what_it_knows() {
        let prolog = told(JobHook::Prolog, &PROLOG).unwrap();
        assert_eq!((prolog.id.as_str(), prolog.is_over, prolog.exit_code), ("11", false, None));
        assert_eq!((prolog.facts.uid, prolog.facts.gpus.as_deref()), (Some(65534), Some("1,3")));
        assert_eq!(text(&prolog.facts, "queue").as_deref(), Some("gpu"));
        assert_eq!((text(&prolog.facts, "account"), text(&prolog.facts, "job_name")), (None, None));

        let ended =
            [&PROLOG[..], &[("SLURM_JOB_EXIT_CODE", "768"), ("SLURM_JOB_EXIT_CODE2", "3:0")]].concat();
        let epilog = told(JobHook::Epilog, &ended).unwrap();
        assert_eq!((epilog.is_over, epilog.exit_code.as_deref()), (true, Some("3:0")));

        let task = [&CONTROLLER[..], &[("SLURM_ARRAY_TASK_ID", "2")]].concat();
        let begun = told(JobHook::Controller, &task).unwrap();
        assert_eq!((begun.is_over, begun.array_task.as_deref()), (false, Some("8_2")));
        assert_eq!(text(&begun.facts, "account").as_deref(), Some("ml"));
        assert_eq!(begun.facts.gpus, None);
        let over = [&task[..], &[("SLURM_JOB_EXIT_CODE", "768")]].concat();
        let over = told(JobHook::Controller, &over).unwrap();
        assert_eq!((over.is_over, over.exit_code.as_deref()), (true, Some("3:0")));
    }

    #[test]
    fn gpus_are_those_of_the_node_and_not_what_the_job_counts() {
        let of = |more: &[(&str, &str)]| {
            told(JobHook::Prolog, &[&[("SLURM_JOB_ID", "1")][..], more].concat()).unwrap().facts.gpus
        };
        let mig = "MIG-4c1f1e0a-5b9d-5a0e-8f5e-0d7f1c2b3a49";
        assert_eq!(of(&[("CUDA_VISIBLE_DEVICES", mig), ("SLURM_JOB_GPUS", "0")]).as_deref(), Some(mig));
        assert_eq!(of(&[("CUDA_VISIBLE_DEVICES", "0"), ("SLURM_JOB_GPUS", "2")]).as_deref(), Some("2"));
        assert_eq!(of(&[("CUDA_VISIBLE_DEVICES", "0")]), None);
    }

    #[test]
    fn a_list_of_gpus_has_whole_names_alone() {
        let names = |count: usize| -> Vec<String> {
            (0..count).map(|gpu| format!("MIG-4c1f1e0a-5b9d-5a0e-8f5e-{gpu:012}")).collect()
        };
        let read = |list: &str| {
            let facts = told(JobHook::Prolog, &[("SLURM_JOB_ID", "1"), ("CUDA_VISIBLE_DEVICES", list)]);
            facts.unwrap().facts.gpu_names().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(read(&names(56).join(",")), names(56), "eight GPUs of seven instances");
        let cut = read(&names(1_000).join(","));
        assert_eq!(cut, names(cut.len()));
        assert!(cut.len() >= 128, "{}", cut.len());
        let numbers: Vec<String> = (0..2_000).map(|number| number.to_string()).collect();
        let list = numbers.join(",");
        let facts =
            told(JobHook::Prolog, &[("SLURM_JOB_ID", "1"), ("SLURM_JOB_GPUS", list.as_str())]).unwrap().facts;
        let cut: Vec<&str> = facts.gpu_names().collect();
        assert_eq!(cut, numbers[..cut.len()]);
    }

    #[test]
    fn texts_have_no_control_characters_and_an_end() {
        let long = "\u{fc}".repeat(4_000);
        let of = |name: &str| {
            let facts =
                told(JobHook::Controller, &[("SLURM_JOB_ID", "1"), ("SLURM_JOB_NAME", name)]).unwrap().facts;
            text(&facts, "job_name")
        };
        assert_eq!(of("a\u{1b}[2Jb\nc\u{85}").as_deref(), Some("a[2Jbc"));
        assert_eq!(of("\n\u{7}"), None);
        assert_eq!(of(&long).map(|name| name.len()), Some(NAME_LEN_MAX));
        for id in ["", "1;2", "job", "-1", "123456789012345678901"] {
            let message =
                HookMessage::of(JobHook::Prolog, |name| (name == "SLURM_JOB_ID").then(|| id.to_owned()));
            assert_eq!(message.ok().as_ref().and_then(ToldJob::of), None, "{id:?}");
        }
    }

    #[test]
    fn labels_are_the_pairs_of_a_comment_and_nothing_else_of_it() {
        let of = |comment: &str| {
            let job = [("SLURM_JOB_ID", "1"), ("SLURM_JOB_COMMENT", comment)];
            text(&told(JobHook::Prolog, &job).unwrap().facts, LABELS)
        };
        assert_eq!(
            of("team=nlp; call kim, project=a/b=c\tphase=2").as_deref(),
            Some("team=nlp,project=a/b=c,phase=2")
        );
        for none in [
            "",
            "see the wiki",
            "=x",
            "team=",
            "t\u{e4}m=a",
            "team=a\u{1b}b",
            &format!("{}=x", "k".repeat(64)),
        ] {
            assert_eq!(of(none), None, "{none:?}");
        }
        let many: Vec<String> = (0..100).map(|number| format!("k{number}=v")).collect();
        assert_eq!(of(&many.join(" ")).map(|all| all.split(',').count()), Some(LABELS_MAX));
    }

    #[test]
    fn what_is_told_can_be_told_again() {
        let more = [("SLURM_ARRAY_TASK_ID", "2"), ("SLURM_JOB_COMMENT", "team=nlp and more")];
        let task = [&CONTROLLER[..], &more].concat();
        let mig = "MIG-4c1f1e0a-5b9d-5a0e-8f5e-0d7f1c2b3a49";
        let by_uuid = [&PROLOG[..4], &[("CUDA_VISIBLE_DEVICES", mig)]].concat();
        for (hook, environment) in
            [(JobHook::Prolog, &PROLOG[..]), (JobHook::Prolog, &by_uuid), (JobHook::Controller, &task)]
        {
            let first = told(hook, environment).unwrap();
            assert_eq!(first.message().as_ref().and_then(ToldJob::of), Some(first));
        }
    }

    #[test]
    fn what_is_not_said_again_stays() {
        let first = told(JobHook::Controller, &CONTROLLER).unwrap().facts;
        let second = [("SLURM_JOB_ID", "11"), ("SLURM_JOB_NAME", "other"), ("SLURM_JOB_GPUS", "0")];
        let both = first.and(told(JobHook::Controller, &second).unwrap().facts);
        assert_eq!((both.uid, both.gpus.as_deref()), (Some(65534), Some("0")));
        assert_eq!(text(&both, "job_name").as_deref(), Some("other"));
        assert_eq!(text(&both, "account").as_deref(), Some("ml"));
    }
}
