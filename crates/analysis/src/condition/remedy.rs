//! What to do, for the vendor of a GPU.

use std::borrow::Cow;

/// Between what is done for NVIDIA and what is done for AMD.
const OR: &str = "//";

/// A remedy with the number of the GPU in its commands, where it is known.
pub(crate) fn with_index(remedy: Cow<'static, str>, index: Option<i32>) -> Cow<'static, str> {
    match index.filter(|_| remedy.contains("INDEX")) {
        Some(index) => Cow::Owned(remedy.replace("INDEX", &index.to_string())),
        None => remedy,
    }
}

/// The text for one vendor. Where vendors differ it is written `{for NVIDIA//for AMD}`. Without a known vendor both are given.
pub(crate) fn for_vendor(text: &'static str, vendor: Option<&str>) -> Cow<'static, str> {
    if !text.contains('{') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, choice, after)) = next_choice(rest) {
        out.push_str(before);
        let (nvidia, amd) = choice.split_once(OR).unwrap_or((choice, choice));
        match vendor {
            Some("nvidia") => out.push_str(nvidia),
            Some("amd") => out.push_str(amd),
            _ => {
                let joint = if nvidia.ends_with('.') { " " } else { " or " };
                out.extend([nvidia, joint, amd]);
            }
        }
        rest = after;
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// What stands before the next choice, the choice, and what stands behind it.
fn next_choice(text: &str) -> Option<(&str, &str, &str)> {
    let (before, from) = text.split_once('{')?;
    let (choice, after) = from.split_once('}')?;
    Some((before, choice, after))
}

#[cfg(test)]
mod tests {
    use super::for_vendor;

    #[test]
    fn a_vendor_is_told_its_own_commands_and_an_unknown_one_both() {
        let text = "Use {`smi -L`//`amd list`} there. {One.//Two.} End.";
        for (vendor, words) in [
            (Some("nvidia"), "Use `smi -L` there. One. End."),
            (Some("amd"), "Use `amd list` there. Two. End."),
            (None, "Use `smi -L` or `amd list` there. One. Two. End."),
        ] {
            assert_eq!(for_vendor(text, vendor), words);
        }
    }
}
