//! NVIDIA's XIDs: what each code means, and what to do about it.
//!
//! Codes and steps follow NVIDIA's catalogue, <https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html> (its column
//! "Immediate Action"); for memory also <https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/>. The words are ours. Which codes
//! applications cause is the list of NVIDIA's Kubernetes device plugin.

/// A code, or several that say the same.
#[derive(Debug)]
pub struct Xid {
    /// The first and the last code.
    codes: (i64, i64),
    /// What it means: a sentence without its full stop.
    pub meaning: &'static str,
    /// What to do.
    pub step: XidStep,
    /// Whether programs cause it: the GPU is healthy.
    pub is_of_application: bool,
    /// Kinds of findings about the same GPU that tell of the same fault and say less.
    pub covers: &'static [&'static str],
    /// Kinds of findings about the same GPU that tell of the same fault and say more.
    pub yields_to: &'static [&'static str],
}

/// What to do about a code.
#[derive(Debug, Clone, Copy)]
pub struct XidStep {
    /// In words; commands in backquotes. `INDEX` stands for the index of the GPU.
    pub words: &'static str,
    /// Whether work on the GPU may go on until somebody has time.
    pub work_goes_on: bool,
}

/// A step at once.
const fn now(words: &'static str) -> XidStep {
    XidStep { words, work_goes_on: false }
}

/// A step that has time.
const fn later(words: &'static str) -> XidStep {
    XidStep { words, work_goes_on: true }
}

/// What the driver asks for answers to the XID.
const ASKED: &[&str] = &["recovery_action"];
const LINKS: &[&str] = &["recovery_action", "links_down"];
const REPLACED: &[&str] = &["recovery_action", "row_remap_pending", "page_retirement_pending"];
const MEMORY: &[&str] =
    &["recovery_action", "row_remap_pending", "page_retirement_pending", "ecc_uncorrected"];

const BY_APPLICATION: XidStep = later(
    "The program that ran causes it as a rule; the GPU may work on. `dmesg | grep -i xid` on the node names \
     the process. If programs meet it that run elsewhere, run `dcgmi diag -r 3 -i INDEX` when the GPU is free.",
);
const RESTART: XidStep = later(
    "Start the job again; the GPU may work on. `dmesg | grep -i xid` on the node names the process. If other jobs meet \
     it on this GPU, run `dcgmi diag -r 3 -i INDEX` when it is free, and give NVIDIA the output of `nvidia-bug-report.sh`.",
);
const GO_ON: XidStep = later(
    "Work may go on, and there is nothing to do now. If it comes again, give NVIDIA the output of `nvidia-bug-report.sh`.",
);
const RESET: XidStep = now(
    "Take the GPU's jobs away, then reset it with `nvidia-smi --gpu-reset -i INDEX`; if that fails, reboot the node. If it \
     comes again, give NVIDIA the output of `nvidia-bug-report.sh`.",
);
const FIRMWARE: XidStep = now(
    "Take the GPU's jobs away, then reset it with `nvidia-smi --gpu-reset -i INDEX`; if that fails, turn the node's \
     power off and on. If it comes again, update the driver: newer ones have newer firmware.",
);
const UNCORRECTED: XidStep = now(
    "Results of the GPU's jobs may be wrong: run them again elsewhere. Drain the node, then reset the GPU with \
     `nvidia-smi --gpu-reset -i INDEX` so that the bad row is replaced. If errors come again, or `nvidia-smi -q -d ROW_REMAPPER -i INDEX` \
     shows a failure, the board is due for exchange.",
);
const NVLINK: XidStep = now(
    "`nvidia-smi nvlink -e -i INDEX` counts the errors of each link, and `dmesg | grep -i xid` names the link. If jobs fail \
     or a link stays down, drain the node and reset the GPUs that are joined to it; if it comes again, the board or the baseboard is due \
     for exchange.",
);
const NO_STEP: XidStep = now(
    "NVIDIA's catalogue names no step for it. `dmesg | grep -i xid` on the node has the driver's words, and other XIDs \
     beside it say what to do.",
);

/// What to do about a code that the table lacks.
const UNKNOWN: XidStep = now(
    "`dmesg | grep -i xid` on the node has the driver's words; NVIDIA's list of XIDs says what they mean: \
     https://docs.nvidia.com/deploy/xid-errors/. Drain the node if jobs fail on this GPU.",
);

/// The codes that are known, with what they mean.
const XIDS: &[Xid] = &[
    one(8, "the GPU stopped processing", RESTART),
    one(11, "a stream of commands was not valid", RESTART),
    application(13, "an exception of the graphics engine"),
    one(25, "a program sent what the GPU does not allow", RESTART),
    application(31, "a program used memory that it does not have"),
    one(32, "a stream of commands was broken", RESTART),
    several(37, 38, "an error of the driver's firmware", GO_ON),
    several(39, 41, "an exception of a copy engine", RESTART),
    application(43, "a program's work was stopped after a fault"),
    one(44, "a fault of the graphics engine while it changed programs", GO_ON),
    application(45, "a program's work was removed, mostly because it ended"),
    one(46, "the GPU stopped processing and did not answer in time", RESET),
    memory(48, "an uncorrectable memory error of two bits", UNCORRECTED),
    one(
        54,
        "the board lacks power from its cable",
        now("Look at the power cable of the board and at the power supplies."),
    ),
    one(60, "an exception of the security processor (SEC2)", RESTART),
    several(61, 62, "the GPU's power controller (PMU) halted", RESET),
    Xid {
        covers: REPLACED,
        yields_to: &["row_remap_failed", "ecc_uncorrected"],
        ..one(
            63,
            "bad memory was marked for replacement",
            later(
                "Work may go on: the driver keeps the bad memory out of use. When the present job has ended, reset the GPU with \
             `nvidia-smi --gpu-reset -i INDEX`, or reboot the node; that replaces it. `nvidia-smi -q -d ROW_REMAPPER -i INDEX` shows what \
             waits.",
            ),
        )
    },
    Xid {
        yields_to: &["row_remap_failed"],
        ..memory(
            64,
            "bad memory could not be marked for replacement",
            now(
                "Drain the node and reset the GPU with `nvidia-smi --gpu-reset -i INDEX`; an A100 needs a reboot of the node. If it comes again, \
             or `nvidia-smi -q -d ROW_REMAPPER -i INDEX` shows a failure, the board is due for exchange.",
            ),
        )
    },
    several(66, 67, "the driver used the GPU in a way that is not allowed", GO_ON),
    application(68, "an exception of the video decoder"),
    one(69, "a program used the graphics engine in a way that is not allowed", RESTART),
    several(70, 72, "an exception of a copy engine", RESTART),
    Xid { covers: LINKS, ..one(74, "an error of NVLink", NVLINK) },
    several(75, 77, "an exception of a copy engine", RESTART),
    one(
        78,
        "a virtual GPU did not start",
        later("Bring the drivers of the host and of the virtual machine to versions that go together."),
    ),
    one(
        79,
        "the GPU has fallen off the bus",
        now(
            "Drain the node and reboot it; its power off and on, if the GPU stays away. If it comes again, reseat the board and look at its \
         power and cooling, then exchange it.",
        ),
    ),
    one(80, "a stream of commands came with a wrong checksum", RESTART),
    one(82, "an exception of the JPEG decoder", RESTART),
    several(83, 84, "an exception of the video decoder", RESTART),
    one(85, "an exception of a copy engine", RESTART),
    one(86, "an exception of the optical flow engine", RESTART),
    several(88, 89, "an exception of the video decoder", RESTART),
    one(
        92,
        "many memory errors were corrected",
        later(
            "Work may go on. `nvidia-smi -q -d ECC,ROW_REMAPPER -i INDEX` shows how many. If the count keeps growing, run `dcgmi diag -r 3 -i \
         INDEX` when the GPU is free, and ask NVIDIA whether the board is due for exchange.",
        ),
    ),
    one(93, "the GPU's own memory (InfoROM) was written too often", GO_ON),
    memory(
        94,
        "an uncorrectable memory error hit one program and no other",
        later(
            "Start the job that it hit again; the others on the GPU may go on. When the GPU is free, reset it with `nvidia-smi --gpu-reset -i \
         INDEX` so that the bad row is replaced.",
        ),
    ),
    memory(95, "an uncorrectable memory error that may have reached every program", UNCORRECTED),
    several(96, 98, "an exception of the video decoder", RESTART),
    several(99, 105, "an exception of the JPEG decoder", RESTART),
    several(106, 107, "a test message", GO_ON),
    one(108, "an access to another GPU failed in NVLink", GO_ON),
    application(109, "the GPU did not change programs in time"),
    one(110, "a fault of the GPU's security", RESET),
    one(119, "the GPU's own processor (GSP) does not answer", FIRMWARE),
    one(120, "the GPU's own processor (GSP) failed", FIRMWARE),
    one(121, "an error of the link to the CPU (C2C)", GO_ON),
    several(126, 135, "an exception of a copy engine", RESTART),
    Xid { covers: LINKS, ..one(136, "NVLink could not be set up", RESET) },
    one(137, "an access through NVLink was refused", GO_ON),
    one(139, "an exception of the optical flow engine", RESTART),
    memory(140, "an uncorrectable memory error that the driver could not handle", UNCORRECTED),
    one(141, "an exception on the driver's fast path", GO_ON),
    one(142, "an exception of the video encoder", NO_STEP),
    one(143, "the GPU did not start", RESET),
    Xid { covers: LINKS, ..several(144, 150, "an error of NVLink", NVLINK) },
    one(
        151,
        "the keys of confidential computing could not be changed",
        later("Start the virtual machine again."),
    ),
    Xid {
        covers: &[],
        yields_to: ASKED,
        ..one(
            154,
            "the driver asks for another recovery than before",
            now(
                "`nvidia-smi -q -i INDEX` shows what it asks for (GPU Recovery Action): do that. The XID before it is the cause.",
            ),
        )
    },
    Xid { covers: LINKS, ..one(155, "an error of NVLink that software defines", RESET) },
    one(156, "a part of the GPU was marked to be taken out of use", RESET),
    one(157, "a part of the GPU could not be taken out of use", GO_ON),
    one(158, "a fatal timeout of the GPU", RESET),
    one(
        159,
        "an error of the coherent link to the CPU",
        later(
            "If the job uses managed memory, take it away and reset the GPU with `nvidia-smi --gpu-reset -i INDEX`; else work may go on.",
        ),
    ),
    one(160, "a channel was taken out of use", GO_ON),
    one(161, "a channel could not be taken out of use", GO_ON),
    one(166, "an error of the encryption on NVLink", NO_STEP),
    one(167, "a fatal timeout of PCIe", NO_STEP),
    one(168, "the GPU has less memory than before", NO_STEP),
    one(169, "the security processor (SEC2) halted", NO_STEP),
    one(170, "an error of the security of NVLink", NO_STEP),
    memory(171, "an uncorrectable error of device memory", NO_STEP),
    memory(172, "an uncorrectable error of on-chip memory", NO_STEP),
];

const fn several(first: i64, last: i64, meaning: &'static str, step: XidStep) -> Xid {
    let codes = (first, last);
    Xid { codes, meaning, step, is_of_application: false, covers: ASKED, yields_to: &[] }
}

const fn one(code: i64, meaning: &'static str, step: XidStep) -> Xid {
    several(code, code, meaning, step)
}

const fn application(code: i64, meaning: &'static str) -> Xid {
    Xid { is_of_application: true, covers: &[], ..one(code, meaning, BY_APPLICATION) }
}

const fn memory(code: i64, meaning: &'static str, step: XidStep) -> Xid {
    Xid { covers: MEMORY, ..one(code, meaning, step) }
}

/// What is known of a code.
pub fn known(code: i64) -> Option<&'static Xid> {
    XIDS.iter().find(|xid| (xid.codes.0..=xid.codes.1).contains(&code))
}

/// Whether programs cause a code: the GPU is healthy.
pub(crate) fn is_of_application(code: i64) -> bool {
    known(code).is_some_and(|xid| xid.is_of_application)
}

/// A code and its meaning: `XID 79: the GPU has fallen off the bus`.
pub fn sentence(code: i64) -> String {
    known(code).map_or_else(|| format!("XID {code}"), |xid| format!("XID {code}: {}", xid.meaning))
}

/// The same within a sentence: `XID 79 (the GPU has fallen off the bus)`.
pub(crate) fn named(code: i64) -> String {
    known(code).map_or_else(|| format!("XID {code}"), |xid| format!("XID {code} ({})", xid.meaning))
}

/// What to do about a code.
pub(super) fn step(code: i64) -> XidStep {
    known(code).map_or(UNKNOWN, |xid| xid.step)
}

/// Kinds of findings that a code covers, and those to which it yields.
pub(super) fn same_fault(code: i64) -> (&'static [&'static str], &'static [&'static str]) {
    known(code).map_or((ASKED, &[]), |xid| (xid.covers, xid.yields_to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::KINDS;

    #[test]
    fn codes_come_in_order_and_name_kinds_that_there_are() {
        assert!(XIDS.iter().all(|xid| xid.codes.0 <= xid.codes.1));
        assert!(XIDS.is_sorted_by(|a, b| a.codes.1 < b.codes.0));
        let is_kind = |id: &&str| KINDS.iter().any(|kind| kind.id == *id);
        assert!(XIDS.iter().all(|xid| xid.covers.iter().chain(xid.yields_to).all(is_kind)));
        assert!(XIDS.iter().all(|xid| !xid.covers.iter().any(|kind| xid.yields_to.contains(kind))));
    }

    #[test]
    fn where_work_may_go_on_nobody_is_told_to_drain() {
        for code in [8, 13, 31, 32, 43, 45, 63, 68, 69, 92, 94, 109] {
            let XidStep { words, work_goes_on } = step(code);
            assert!(
                work_goes_on && !words.contains("rain the node") && words.contains("ay"),
                "{code}: {words}"
            );
        }
        for code in [48, 64, 79, 95, 140] {
            assert!(!step(code).work_goes_on && step(code).words.contains("rain the node"), "{code}");
        }
        assert!(!step(9_999).work_goes_on && step(9_999).words.contains("xid-errors"));
        assert_eq!(sentence(9_999), "XID 9999");
    }
}
