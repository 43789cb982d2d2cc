//! The report as Markdown, for a pull request.

use std::fmt::{self, Write as _};

use crate::run::RunReport;
use crate::tables::{self, RunTable};
use crate::words::{is_seen, span};

impl RunReport {
    /// Markdown as GitHub and GitLab show it: a heading, the sentences, the tables.
    pub fn markdown(&self) -> String {
        RunMarkdown { run: self }.to_string()
    }
}

struct RunMarkdown<'a> {
    run: &'a RunReport,
}

/// A text in Markdown: no character of it is markup, none turns the direction of others, and it calls nobody by name.
#[derive(Debug, Clone, Copy)]
pub struct MarkdownText<'a>(pub &'a str);

impl fmt::Display for MarkdownText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            match letter {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                // GitHub tells nobody who stands behind a comment.
                '@' => f.write_str("@<!-- -->")?,
                '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '#' | '!' | ':' => write!(f, "\\{letter}")?,
                unseen if !is_seen(unseen) => f.write_char(' ')?,
                letter => f.write_char(letter)?,
            }
        }
        Ok(())
    }
}

/// A line of a table.
struct TableLine<'a>(&'a [String]);

impl fmt::Display for TableLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|cell| write!(f, "| {} ", MarkdownText(cell)))?;
        f.write_str("|\n")
    }
}

/// A table of Markdown, with numbers to the right.
impl fmt::Display for RunTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_number = |column: usize| column >= self.numbers_from;
        write!(f, "{}", TableLine(&self.heads))?;
        (0..self.heads.len())
            .try_for_each(|column| f.write_str(if is_number(column) { "| --: " } else { "| :-- " }))?;
        f.write_str("|\n")?;
        self.rows.iter().try_for_each(|row| write!(f, "{}", TableLine(row)))
    }
}

impl fmt::Display for RunMarkdown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let run = self.run;
        writeln!(f, "### {}\n", MarkdownText(&run.title))?;
        if let Some(started) = &run.started {
            write!(f, "{} from {started} on", span(run.duration_s))?;
            for command in run.commands() {
                write!(f, " · {}", MarkdownText(command))?;
            }
            f.write_str(".\n\n")?;
        }
        for sentence in &run.sentences {
            writeln!(f, "{}", MarkdownText(sentence))?;
        }
        if !run.gpus.is_empty() {
            write!(f, "\n{}", tables::of_gpus(&run.gpus))?;
        }
        if run.energy_j.is_some() {
            let energy = tables::with_error(run.energy_j, run.energy_error.as_ref());
            write!(f, "\nEnergy in all: {energy}.")?;
            for note in tables::notes_on_energy(&run.gpus) {
                write!(f, " {}", MarkdownText(&note))?;
            }
            f.write_char('\n')?;
        }
        if let Some(steps) = &run.steps {
            write!(f, "\nSteps after the warm-up:\n\n{}", tables::of_steps(steps))?;
        }
        if !run.phases.is_empty() {
            write!(f, "\nPhases:\n\n{}", tables::of_phases(&run.phases))?;
        }
        if let Some(limits) = tables::of_limits(&run.gpus) {
            write!(f, "\nClocks held down, as shares of the time:\n\n{limits}")?;
        }
        if !run.hosts.is_empty() {
            write!(f, "\n{}", tables::of_hosts(&run.hosts))?;
        }
        if !run.marks.is_empty() {
            let count = run.marks.len() as u64 + run.marks_left_out;
            let marks = tables::of_marks(&run.marks);
            write!(f, "\n<details><summary>{count} marks</summary>\n\n{marks}\n</details>\n")?;
        }
        Ok(())
    }
}
