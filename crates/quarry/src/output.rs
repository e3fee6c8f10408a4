//! What is written to the terminal: formats, ages, errors, hints.
//!
//! Errors of all crates are `what happened; remedy`: the remedy is printed as `hint: <remedy>` on its own line.

use crate::sanitize;
use clap::ValueEnum;
use jiff::Timestamp;
pub use quarry_view::text::split_remedy;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use std::io::{IsTerminal, Write};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Table,
    Wide,
    Json,
    Yaml,
}

/// Writes to standard output. A closed pipe is an error that `main` treats as success.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    if !text.ends_with('\n') && !text.is_empty() {
        out.write_all(b"\n")?;
    }
    out.flush()?;
    Ok(())
}

/// The reader of the output has closed its end of the pipe.
pub fn is_closed() -> bool {
    let out = std::io::stdout();
    let mut polled = [PollFd::new(&out, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut polled, Some(&now)), Ok(1))
        && polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

/// A note beside the result: on standard error, so that it never gets into a pipe.
pub fn note(text: &str) {
    // With standard error closed there is no place for it.
    let _ = writeln!(std::io::stderr(), "{}", sanitize::lines(text));
}

/// What to do next, beside the result.
pub fn hint(text: &str) {
    note(&format!("hint: {text}"));
}

/// Whether notes go to a terminal.
pub fn is_interactive() -> bool {
    std::io::stderr().is_terminal()
}

/// Colors only for a terminal that wants them (https://no-color.org).
pub fn colors() -> bool {
    std::io::stdout().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// The columns of the terminal that the result goes to; `None` for a file or pipe.
pub fn width() -> Option<usize> {
    let out = std::io::stdout();
    let size = rustix::termios::tcgetwinsize(&out).ok().filter(|_| out.is_terminal())?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

pub fn json<T: Serialize>(value: &T) -> anyhow::Result<String> {
    Ok(sanitize::json(&serde_json::to_string_pretty(value)?))
}

pub fn yaml<T: Serialize>(value: &T) -> anyhow::Result<String> {
    // Through a JSON value: enums and quantities are then plain scalars, as in the API.
    let value = serde_json::to_value(value)?;
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    let text = serde_saphyr::to_string_with_options(&value, options)?;
    // JSON is YAML too, and can escape every character that a terminal must not get.
    if sanitize::lines(&text) != text { Ok(json(&value)? + "\n") } else { Ok(text) }
}

/// Documents of one stream, each introduced by `---`.
pub fn yaml_documents<T: Serialize>(values: &[T]) -> anyhow::Result<String> {
    let mut text = String::new();
    for value in values {
        text.push_str("---\n");
        text.push_str(&yaml(value)?);
    }
    Ok(text)
}

/// The age as kubectl shows it, in one or two units.
pub fn age(since: Option<&Timestamp>, now: Timestamp) -> String {
    let Some(since) = since else { return "<unknown>".into() };
    let seconds = now.duration_since(*since).as_secs().max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match () {
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => pair(minutes, 'm', seconds % 60, 's'),
        () if hours < 3 => format!("{minutes}m"),
        () if hours < 8 => pair(hours, 'h', minutes % 60, 'm'),
        () if hours < 48 => format!("{hours}h"),
        () if days < 8 => pair(days, 'd', hours % 24, 'h'),
        () if days < 730 => format!("{days}d"),
        () => format!("{}y", days / 365),
    }
}

fn pair(large: i64, large_unit: char, small: i64, small_unit: char) -> String {
    if small == 0 {
        format!("{large}{large_unit}")
    } else {
        format!("{large}{large_unit}{small}{small_unit}")
    }
}

/// The error and its causes in one paragraph, without causes that repeat it.
pub fn error_text(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

/// An error as `error: …`, and its remedy as `hint: …` on its own line.
pub fn error_lines(error: &anyhow::Error) -> String {
    let text = error_text(error);
    match split_remedy(&text) {
        (problem, Some(remedy)) => format!("error: {problem}\nhint: {remedy}"),
        (problem, None) => format!("error: {problem}"),
    }
}

/// Text that is built line by line, without spaces at the ends of lines.
#[derive(Default)]
pub struct Lines(String);

impl Lines {
    pub fn add(&mut self, line: &str) {
        self.0.push_str(line.trim_end());
        self.0.push('\n');
    }

    pub fn into_text(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    #[test]
    fn a_remedy_is_printed_as_a_hint_on_its_own_line() {
        let lines = |text: &'static str| error_lines(&anyhow!(text));
        assert_eq!(
            lines("volume v (`a; b`; c) does not exist; run `quarry volumes; x`"),
            "error: volume v (`a; b`; c) does not exist\nhint: run `quarry volumes; x`"
        );
        assert_eq!(lines("no remedy;here"), "error: no remedy;here");
        assert_eq!(lines("2 problems:\n  a; b\n  c; d"), "error: 2 problems:\n  a; b\n  c; d");
    }

    #[test]
    fn ages_read_as_in_kubectl() {
        let now: Timestamp = "2026-01-10T00:00:00Z".parse().unwrap();
        let ago = |seconds: i64| age(Some(&(now - jiff::SignedDuration::from_secs(seconds))), now);
        assert_eq!(
            [
                ago(0),
                ago(119),
                ago(125),
                ago(600),
                ago(3 * 3600 + 60),
                ago(9 * 3600),
                ago(3 * 86400),
                ago(30 * 86400),
                ago(800 * 86400)
            ],
            ["0s", "119s", "2m5s", "10m", "3h1m", "9h", "3d", "30d", "2y"]
        );
        assert_eq!(ago(-5), "0s", "a clock that is behind gives no negative age");
        assert_eq!(age(None, now), "<unknown>");
    }

    #[test]
    fn a_cause_is_printed_once() {
        let error = anyhow!("no space left").context("writing the store");
        assert_eq!(error_text(&error), "writing the store: no space left");
        let repeated = anyhow!("no space left").context("writing the store: no space left");
        assert_eq!(error_text(&repeated), "writing the store: no space left");
    }

    #[test]
    fn yaml_reads_back_as_the_same_value() {
        let value = serde_json::json!({"a": "1", "b": "yes", "d": "a: b # c", "e": "two\nlines", "f": "", "g": "1e3", "h": "0x1f"});
        let text = yaml(&value).unwrap();
        assert_eq!(serde_saphyr::from_str::<serde_json::Value>(&text).unwrap(), value, "{text}");
        assert!(text.starts_with("a: \"1\"\n"), "{text}");
        let hostile = serde_json::json!({"c": "x\u{1b}[2J\u{9b}\u{202e}"});
        let text = yaml(&hostile).unwrap();
        assert_eq!(serde_saphyr::from_str::<serde_json::Value>(&text).unwrap(), hostile, "{text}");
        assert!(!text.contains(['\u{1b}', '\u{9b}', '\u{202e}']), "{text:?}");
    }
}
