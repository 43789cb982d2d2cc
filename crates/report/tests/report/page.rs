//! The page: what a browser would make of it, and what strangers' texts become in it.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::digest::{SHA256, digest};

use crate::report;
use crate::written::{Run, Said};

/// A tag of a page with its attributes.
#[derive(Debug)]
struct Tag {
    name: String,
    attributes: BTreeMap<String, String>,
}

impl Tag {
    fn of(text: &str) -> Self {
        let (name, mut rest) = text.split_once([' ', '\n']).unwrap_or((text, ""));
        let mut attributes = BTreeMap::new();
        while let Some((key, after)) = rest.trim_start().split_once("=\"") {
            let (value, after) = after.split_once('"').unwrap();
            attributes.insert(key.trim().to_owned(), value.to_owned());
            rest = after;
        }
        assert!(["", "/"].contains(&rest.trim()), "{rest:?} in <{text}>");
        Self { name: name.to_owned(), attributes }
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.attributes.get(name).map(String::as_str)
    }
}

/// The tags of a page, in which each that is opened is closed.
fn tags(page: &str) -> Vec<Tag> {
    let (mut tags, mut open) = (Vec::new(), Vec::new());
    for piece in page.split('<').skip(1) {
        let (inside, _) = piece.split_once('>').unwrap();
        if let Some(name) = inside.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name), "closed in its turn");
            continue;
        }
        if inside.starts_with('!') {
            continue;
        }
        let tag = Tag::of(inside);
        if tag.name != "meta" && !inside.ends_with('/') {
            open.push(tag.name.clone());
        }
        tags.push(tag);
    }
    assert!(open.is_empty(), "{open:?}");
    tags
}

/// The markup that a page has. Neither scripts nor anything that is fetched.
const TAGS: &[&str] = &[
    "a",
    "body",
    "caption",
    "code",
    "dd",
    "details",
    "div",
    "dl",
    "dt",
    "figcaption",
    "figure",
    "footer",
    "h1",
    "h2",
    "h3",
    "head",
    "header",
    "html",
    "li",
    "main",
    "meta",
    "nav",
    "p",
    "path",
    "section",
    "style",
    "summary",
    "svg",
    "table",
    "tbody",
    "td",
    "text",
    "th",
    "thead",
    "title",
    "tr",
    "ul",
];
const ATTRIBUTES: &[&str] = &[
    "aria-hidden",
    "aria-label",
    "aria-labelledby",
    "charset",
    "class",
    "content",
    "d",
    "href",
    "http-equiv",
    "id",
    "lang",
    "name",
    "role",
    "scope",
    "tabindex",
    "viewBox",
    "x",
    "y",
];

fn is_harmless(page: &str) {
    for Tag { name, attributes } in tags(page) {
        assert!(TAGS.contains(&name.as_str()), "<{name}>");
        for (key, value) in attributes {
            assert!(ATTRIBUTES.contains(&key.as_str()), "{key} in <{name}>");
            assert!(key != "href" || value.starts_with('#'), "{value}");
        }
    }
    for word in ["url(", "@import", "http://", "https://"] {
        assert!(!page.contains(word), "{word}");
    }
}

#[test]
fn a_page_needs_nothing_else_and_its_policy_forbids_all_but_its_own_style() {
    let page = report(&Run::hot()).html();
    is_harmless(&page);
    let style = page.split_once("<style>").unwrap().1.split_once("</style>").unwrap().0;
    let hash = BASE64_STANDARD.encode(digest(&SHA256, style.as_bytes()));
    let tags = tags(&page);
    let policy = tags.iter().find(|tag| tag.get("http-equiv") == Some("Content-Security-Policy")).unwrap();
    let wanted =
        format!("default-src 'none'; style-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'");
    assert_eq!(policy.get("content"), Some(wanted.as_str()));
}

#[test]
fn texts_of_strangers_stay_texts() {
    let hostile = [
        "</script><script>alert(1)</script>",
        "</style><style>*{display:none}</style>",
        "</title></svg><img src=x onerror=\"alert(1)\">",
        "\" onclick=\"alert(1)",
        "' autofocus onfocus='alert(1)",
        "<!--",
        "\u{202e}\u{0}\u{1b}[2J",
        "a\u{200e}b\u{200f}c\u{202a}d\u{2066}e\u{2069}f",
    ];
    for text in hostile {
        let model = if text.contains('\0') { "plain" } else { text };
        let run = Run { model, command: text, marks: vec![(1_000, text.to_owned())], ..Run::hot() };
        let page = report(&run).html();
        is_harmless(&page);
        assert!(!page.contains(text) && !page.contains("<script"), "{text}");
        assert!(!text.contains("alert(1)") || page.contains("alert(1)"), "it is shown, as text");
        assert!(!page.contains(['\0', '\u{1b}']), "{text:?}");
        let turns = ['\u{200e}', '\u{200f}', '\u{202a}', '\u{202e}', '\u{2066}', '\u{2069}'];
        assert!(!page.contains(turns), "{text:?}");
    }
}

#[test]
fn what_a_recording_says_of_itself_is_for_people() {
    let page = report(&Run::hot()).html();
    for fact in ["<dt>command</dt><dd>python train.py</dd>", "<dt>arguments</dt><dd>--epochs 3</dd>"] {
        assert!(page.contains(fact), "{fact}");
    }
    assert!(!page.contains("<dt>gpus</dt>"), "the table of the GPUs has them");
}

#[test]
fn who_hears_the_page_or_uses_keys_finds_the_same_in_it() {
    let page = report(&Run::hot()).html();
    let tags = tags(&page);
    let count = |name: &str| tags.iter().filter(|tag| tag.name == name).count();
    for landmark in ["h1", "header", "main", "nav", "footer", "title"] {
        assert_eq!(count(landmark), 1, "{landmark}");
    }
    assert!(tags.iter().any(|tag| tag.name == "html" && tag.get("lang") == Some("en")));
    for tag in tags.iter().filter(|tag| tag.name == "svg") {
        let is_named =
            tag.get("role") == Some("img") && tag.get("aria-label").is_some_and(|label| !label.is_empty());
        assert!(is_named || tag.get("aria-hidden") == Some("true"), "{tag:?}");
    }
    // Each chart has a table beside it.
    let charts = tags.iter().filter(|tag| tag.get("role") == Some("img")).count();
    assert!(charts > 4 && count("figure") == charts && count("details") == charts, "{charts}");
    let regions = tags.iter().filter(|tag| tag.get("role") == Some("region"));
    let labels: Vec<_> = regions.map(|tag| tag.get("aria-label").unwrap()).collect();
    assert_eq!(labels.iter().collect::<BTreeSet<_>>().len(), labels.len(), "{labels:?}");
    assert_eq!(count("table"), labels.len(), "who uses keys can scroll each table");
    let ids: BTreeSet<_> = tags.iter().filter_map(|tag| tag.get("id")).collect();
    let targets = tags.iter().filter_map(|tag| tag.get("href")?.strip_prefix('#'));
    let labelled = tags.iter().filter_map(|tag| tag.get("aria-labelledby"));
    assert!(targets.chain(labelled).all(|id| ids.contains(id)), "{ids:?}");
    for query in ["(prefers-color-scheme: dark)", "@media print", "(max-width: 600px)"] {
        assert!(page.contains(query), "{query}");
    }
}

#[test]
fn eight_gpus_for_ten_minutes_fit_into_two_megabytes() {
    let run = Run {
        gpus: 8,
        rows: 6_000,
        said: |gpu, row| {
            let noise = (row * 7_919 + i64::from(gpu) * 104_729) % 300;
            Some(Said { watts: 400 + noise, clock_mhz: 1_500 + noise, is_hot: noise > 200 })
        },
        ..Run::hot()
    };
    let page = report(&run).html();
    assert!(page.len() > 100_000 && page.len() < 2_000_000, "{} bytes", page.len());
    is_harmless(&page);
}

/// The lines of the first chart: a path for each GPU.
fn power_lines(page: &str) -> Vec<String> {
    let chart = page.split("<h3>Power, W</h3>").nth(1).unwrap().split("</svg>").next().unwrap();
    let lines = tags(&format!("{chart}</svg>").replacen("</figcaption>", "", 1));
    let lines = lines.iter().filter(|tag| tag.get("class").is_some_and(|class| class.starts_with("line ")));
    lines.map(|tag| tag.get("d").unwrap().to_owned()).collect()
}

#[test]
fn a_peak_of_one_row_is_seen_and_a_gap_is_no_line() {
    let run = Run {
        gpus: 2,
        rows: 3_000,
        said: |gpu, row| {
            let watts = if row == 1_500 { 900 } else { 400 };
            // One of them says nothing for a minute.
            let is_away = gpu == 1 && (600..1_200).contains(&row);
            (!is_away).then_some(Said { watts, clock_mhz: 1_980, is_hot: false })
        },
        ..Run::hot()
    };
    let page = report(&run).html();
    assert!(page.contains(">800</text>"), "the axis reaches the peak");
    let pieces: Vec<_> = power_lines(&page).iter().map(|line| line.matches('M').count()).collect();
    assert_eq!(pieces, [1, 2]);
    assert!(page.contains("Clock: 1980 MHz, the same all the time"));
    assert!(page.contains("GPU 1 reported nothing for 1 min 0 s"));
}

#[test]
fn what_held_the_clocks_is_drawn_where_it_did() {
    let page = report(&Run::hot()).html();
    let bars: Vec<_> = tags(&page).into_iter().filter(|tag| tag.get("class") == Some("by-heat")).collect();
    // The bar of the GPU, and the legend.
    let [bar, _] = bars.as_slice() else { panic!("{bars:?}") };
    let path = bar.get("d").unwrap();
    let start: f64 = path.trim_start_matches('M').split(' ').next().unwrap().parse().unwrap();
    let width: f64 = path.split('h').nth(1).unwrap().split('v').next().unwrap().parse().unwrap();
    let plot = 860.0 - 64.0 - 8.0;
    let (from, share) = ((start - 64.0) / plot, width / plot);
    assert!((from - 0.3).abs() < 0.01 && (share - 0.4).abs() < 0.01, "{path}");
}

#[test]
fn the_colours_are_those_of_the_dashboard() {
    let file = |path: &str| {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        std::fs::read_to_string(path).unwrap()
    };
    let colours = |text: &str, after: &str| -> BTreeMap<String, String> {
        let block = text.split_once(after).unwrap().1.split_once('}').unwrap().0;
        let lines = block.lines().filter_map(|line| line.trim().strip_prefix("--")?.split_once(": "));
        lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    };
    let (ours, page) = (file("src/style.css"), file("../../dashboard/src/app/style.css"));
    for (mine, theirs) in [
        ("*/\n:root {", "\n:root {"),
        ("(prefers-color-scheme: dark) {\n  :root {", ":root[data-theme=\"dark\"] {"),
    ] {
        let (mine, theirs) = (colours(&ours, mine), colours(&page, theirs));
        assert!(mine.len() > 10);
        for (name, colour) in &mine {
            assert_eq!(theirs.get(name), Some(colour), "{name}");
        }
    }
}
