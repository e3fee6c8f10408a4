//! `quarry ledger`: the intents and outcomes that the agent of this node recorded. Reads only, repairs nothing.

use crate::{
    cli::{LedgerArgs, PlanFormat},
    data_dir, output, sanitize,
};
use anyhow::anyhow;
use comfy_table::{ContentArrangement, Table, presets::NOTHING};
use quarry_node::{
    OutcomeResult,
    ledger::{Parsed, Record, parse},
};
use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

/// Its file in the agent's data directory.
const LEDGER: &str = "ledger";

pub fn run(args: &LedgerArgs) -> anyhow::Result<()> {
    let path = ledger_path(args)?;
    let bytes = std::fs::read(&path).map_err(|error| unreadable(&path, &error))?;
    let parsed = parse(&bytes);
    for note in notes(&parsed, bytes.len()) {
        output::note(&format!("{}: {note}", path.display()));
    }
    match args.output {
        PlanFormat::Json => output::print(&output::json(&parsed.records)?),
        PlanFormat::Table if parsed.records.is_empty() => {
            output::note(&format!(
                "{} is empty: no agent has recorded anything yet",
                path.display()
            ));
            Ok(())
        }
        PlanFormat::Table => output::print(&render(&parsed.records)),
    }
}

fn ledger_path(args: &LedgerArgs) -> anyhow::Result<PathBuf> {
    let dir = match &args.data_dir {
        Some(dir) => dir.clone(),
        // Another root is another machine's, where this user's own directory means nothing.
        None if args.host_root != Path::new("/") => data_dir::SYSTEM.into(),
        None => data_dir::default()?,
    };
    let below = dir.strip_prefix("/").unwrap_or(&dir);
    // A relative directory is relative to the working directory.
    let base = if dir.is_absolute() { args.host_root.clone() } else { PathBuf::new() };
    Ok(base.join(below).join(LEDGER))
}

fn unreadable(path: &Path, error: &std::io::Error) -> anyhow::Error {
    let path = path.display();
    match error.kind() {
        ErrorKind::NotFound => anyhow!(
            "no ledger at {path}: no agent has run there; set its data directory with --data-dir, and its root with --host-root"
        ),
        ErrorKind::PermissionDenied => {
            anyhow!(
                "the ledger {path} is not readable by this user; run the command as root (sudo)"
            )
        }
        _ => anyhow!("reading the ledger {path}: {error}"),
    }
}

fn notes(parsed: &Parsed, length: usize) -> Vec<String> {
    let mut notes: Vec<String> = parsed
        .damaged
        .iter()
        .map(|line| format!("line {line} is omitted: it is damaged, or of a newer version"))
        .collect();
    if parsed.whole < length {
        notes.push("the last line is incomplete: it is being written, or a crash cut it short, before anything was done".to_owned());
    }
    notes
}

fn render(records: &[Record]) -> String {
    let mut table = Table::new();
    // Never wrapped: every record is one line, also for grep.
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled).force_no_tty();
    let headers = ["TIME", "KIND", "ACTION", "RESULT", "ABOUT", "JOB", "TEXT"];
    table.set_header(headers);
    for record in records {
        let result = match record.result {
            None => "",
            Some(OutcomeResult::Succeeded) => "succeeded",
            Some(OutcomeResult::Failed) => "failed",
        };
        let cells = [
            record.time.to_string(),
            record.kind.as_str().to_owned(),
            record.action.map_or("", |action| action.as_str()).to_owned(),
            result.to_owned(),
            about(record),
            record.job.clone(),
            record.text.clone(),
        ];
        table.add_row(cells.map(|cell| {
            if cell.is_empty() { "-".to_owned() } else { sanitize::line(&cell).into_owned() }
        }));
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, if index + 1 == headers.len() { 0 } else { 3 }));
    }
    table.trim_fmt()
}

/// A volume by its UID; a claimed device by its identity and its PersistentVolume.
fn about(record: &Record) -> String {
    let volume = Some(record.volume_uid.clone()).filter(|uid| !uid.is_empty());
    let pv = record.pv.as_ref().map(|pv| format!("PersistentVolume {}", pv.name));
    let ledger = Some(record.ledger_id.clone()).filter(|id| !id.is_empty());
    [ledger, volume, record.device.clone(), pv].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = concat!(
        r#"{"time":"2026-01-01T00:00:00Z","kind":"intent","job":"prepare-1","action":"Prepare","volumeUID":"1111","text":"1Gi xfs"}"#,
        "\n",
        r#"{"time":"2026-01-01T00:00:00.2Z","kind":"outcome","job":"prepare-1","action":"Prepare","volumeUID":"1111","result":"succeeded","text":"on loop3\u001b[2J"}"#,
        "\n",
    );

    #[test]
    fn every_record_is_one_line() {
        let text = render(&parse(LINES.as_bytes()).records);
        insta::assert_snapshot!(text, @r"
        TIME                     KIND      ACTION    RESULT      ABOUT   JOB         TEXT
        2026-01-01T00:00:00Z     intent    Prepare   -           1111    prepare-1   1Gi xfs
        2026-01-01T00:00:00.2Z   outcome   Prepare   succeeded   1111    prepare-1   on loop3\u{1b}[2J
        ");
    }

    #[test]
    fn a_claimed_device_has_its_identity_and_pv() {
        let line = r#"{"time":"2026-01-01T00:00:00Z","kind":"intent","job":"wipe-1","action":"Wipe","device":"wwn:5000","pv":{"name":"local-pv-1","uid":"u"}}"#;
        let record: Record = serde_json::from_str(line).unwrap();
        assert_eq!(about(&record), "wwn:5000, PersistentVolume local-pv-1");
    }

    #[test]
    fn unreadable_lines_are_noted() {
        let torn = format!("{LINES}nonsense\n{{\"time\":");
        let parsed = parse(torn.as_bytes());
        let notes = notes(&parsed, torn.len());
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(
            notes[0].starts_with("line 3 is omitted")
                && notes[1].starts_with("the last line is incomplete"),
            "{notes:?}"
        );
    }

    #[test]
    fn the_ledger_is_below_the_root_of_its_node() {
        let args = |root: &str, dir: Option<&str>| LedgerArgs {
            host_root: root.into(),
            data_dir: dir.map(Into::into),
            output: PlanFormat::Table,
        };
        assert_eq!(
            ledger_path(&args("/host", None)).unwrap(),
            Path::new("/host/var/lib/quarry/ledger")
        );
        assert_eq!(
            ledger_path(&args("/host", Some("/data"))).unwrap(),
            Path::new("/host/data/ledger")
        );
        assert_eq!(ledger_path(&args("/", Some("/data"))).unwrap(), Path::new("/data/ledger"));
        assert_eq!(ledger_path(&args("/", Some("here"))).unwrap(), Path::new("here/ledger"));
        let error = unreadable(Path::new("/x/ledger"), &ErrorKind::NotFound.into()).to_string();
        assert!(error.contains("--data-dir"), "{error}");
    }
}
