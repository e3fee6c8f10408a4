//! `quarry explain osd/NAME`: its objects, its state, what it waits for, what to do, and the last result of preparing it.

use super::{add_events, add_remedies, mark};
use crate::{
    cli::{ConnectArgs, ExplainArgs},
    connect::Cluster,
    host, osds, output, sanitize,
};
use anyhow::{anyhow, bail};
use jiff::Timestamp;
use quarry_view::osds::{
    Objects, OsdExplanation, Which,
    explain::{ResultView, find, read_events},
};

pub async fn run(connect: &ConnectArgs, args: &ExplainArgs, which: &Which) -> anyhow::Result<()> {
    let cluster = Cluster::connect(connect).await?;
    let place = host::namespace(&cluster, args.namespace.as_deref());
    let mut objects = osds::read(&cluster, Some(place)).await?;
    let first = one(&objects, place, which)?;
    if let Err(error) = objects.read_volumes(&cluster, &first.volumes(&objects)).await {
        // A user of one namespace may not read them.
        let error = output::error_text(&error);
        output::note(&format!("its PersistentVolumes are not shown: {error}"));
    }
    let mut explanation = one(&objects, place, which)?;
    match read_events(&cluster, &explanation).await {
        Ok(events) => explanation = explanation.with_events(events),
        Err(error) => {
            let error = output::error_text(&error);
            output::note(&format!("its Events are not shown: {error}"));
        }
    }
    output::print(&render(&explanation, Timestamp::now(), output::colors()))
}

fn one(objects: &Objects, place: &str, which: &Which) -> anyhow::Result<OsdExplanation> {
    let mut found = find(objects, place, which);
    if found.len() > 1 {
        let names: Vec<&str> = found.iter().filter_map(|one| one.row.pvc.as_deref()).collect();
        bail!(
            "{} OSDs are {which} in namespace {place}; name one by its PVC: {}",
            found.len(),
            names.iter().map(|name| format!("osd/{name}")).collect::<Vec<_>>().join(", ")
        );
    }
    found.pop().ok_or_else(|| {
        anyhow!("{which} does not exist in namespace {place}; run `quarry osds` to list those of all namespaces, and name theirs with -n")
    })
}

fn render(explanation: &OsdExplanation, now: Timestamp, colors: bool) -> String {
    let mut text = output::Lines::default();
    text.add(&title(explanation, now, colors));
    let row = &explanation.row;
    let mut add = |name: &str, value: &str| {
        text.add(&format!("  {name:<14} {}", sanitize::line(value)));
    };
    add("cluster", &format!("CephCluster {}/{}", row.namespace, row.cluster));
    add("set", &format!("{}, index {}", row.set, row.index));
    add("node", row.node.as_deref().unwrap_or("not chosen yet"));
    if let Some(class) = &row.device_class {
        add("device class", class);
    }
    text.add("");
    if let Some(problem) = &explanation.problem {
        text.add(&format!("Problem: {}", sanitize::line(problem)));
    }
    match &explanation.waits_for {
        Some(what) => text.add(&format!("Waits for: {}", sanitize::line(what))),
        None => text.add("Waits for: nothing"),
    }
    if !explanation.remedies.is_empty() {
        text.add("What to do:");
    }
    add_remedies(&mut text, &explanation.remedies, 0);
    text.add("");
    text.add("Objects:");
    for field in &explanation.objects {
        text.add(&format!("  {:<14} {}", field.name, sanitize::line(&field.text)));
    }
    add_result(&mut text, &explanation.result);
    text.add("");
    add_events(&mut text, &explanation.events, now);
    text.into_text()
}

fn title(explanation: &OsdExplanation, now: Timestamp, colors: bool) -> String {
    let row = &explanation.row;
    let name = match (row.id, &row.pvc) {
        (Some(id), _) => format!("osd.{id}"),
        (None, Some(pvc)) => format!("OSD of PVC {pvc}"),
        (None, None) => "OSD".to_owned(),
    };
    let since = row
        .since
        .map_or_else(String::new, |since| format!(" (for {})", output::age(Some(&since), now)));
    let line = format!("{name} in namespace {}: {}{since}", row.namespace, row.state);
    format!("{} {}", mark(row.tone.verdict(), colors), sanitize::line(&line))
}

fn add_result(text: &mut output::Lines, result: &ResultView) {
    let mut add = |line: &str| text.add(&sanitize::line(line));
    match result {
        ResultView::None => add("Last prepare result: none"),
        ResultView::Succeeded { id, uuid, location, device_class, recorded } => {
            add(&format!("Last prepare result: succeeded, osd.{id}"));
            add(&format!("  UUID           {uuid}"));
            let place = if location.is_empty() { "not given" } else { location };
            add(&format!("  location       {place}"));
            let class = if device_class.is_empty() { "not given" } else { device_class };
            add(&format!("  device class   {class}"));
            let kept = recorded.as_ref().map(|name| format!("ConfigMap {name}"));
            add(&format!(
                "  recorded in    {}",
                kept.as_deref().unwrap_or("the status of the prepare pod only")
            ));
        }
        ResultView::Failed { reason, message, is_refusal } => {
            let kind = if *is_refusal { "refused" } else { "failed" };
            add(&format!("Last prepare result: {kind}, {reason}"));
            for line in message.lines() {
                add(&format!("  {line}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Event;
    use quarry_view::osds::samples;
    use serde_json::json;

    fn text(objects: &Objects, name: &str) -> String {
        let event = |kind: &str, name: &str, message: &str, time: &str| -> Event {
            serde_json::from_value(json!({
                "metadata": {}, "involvedObject": {"kind": kind, "name": name}, "type": "Normal",
                "reason": "Reason", "message": message, "lastTimestamp": time,
            }))
            .unwrap()
        };
        let events = vec![
            event("Job", "j", "Created pod: p", "2026-01-01T00:05:00Z"),
            event("PersistentVolumeClaim", "c", "waiting for a pod", "2026-01-01T00:02:00Z"),
        ];
        let explanation = one(objects, "rook-ceph", &Which::parse(name)).unwrap();
        let now = "2026-01-01T00:06:00Z".parse().unwrap();
        render(&explanation.with_events(events), now, false)
    }

    #[test]
    fn a_running_osd_waits_for_nothing() {
        insta::assert_snapshot!(text(&samples::objects(), "0"));
    }

    #[test]
    fn a_refused_device_has_reason_and_remedy() {
        insta::assert_snapshot!(text(&samples::objects(), "fast-data-3"));
    }

    #[test]
    fn osds_on_the_way_say_what_they_wait_for() {
        let texts = ["fast-data-1", "fast-data-2", "6", "osd.8"]
            .map(|name| text(&samples::objects(), name));
        insta::assert_snapshot!(texts.join("\n"));
    }

    #[test]
    fn a_lost_pvc_is_explained_by_the_id() {
        insta::assert_snapshot!(text(&samples::lost(), "0"));
    }

    #[test]
    fn an_unknown_osd_has_a_remedy() {
        let error = |name: &str| {
            one(&samples::objects(), "rook-ceph", &Which::parse(name)).unwrap_err().to_string()
        };
        assert_eq!(
            error("77"),
            "osd.77 does not exist in namespace rook-ceph; run `quarry osds` to list those of all namespaces, and name theirs with -n"
        );
        assert!(error("x").starts_with("OSD of PVC x does not exist"));
    }

    #[test]
    fn escape_sequences_in_an_explanation_are_escaped() {
        let mut objects = samples::objects();
        for pod in objects.pods.values_mut() {
            let statuses = pod.status.iter_mut().flat_map(|one| one.container_statuses.iter_mut());
            for ended in statuses.flatten().filter_map(|one| one.state.as_mut()) {
                if let Some(ended) = &mut ended.terminated {
                    ended.message = Some("\u{1b}[2J\u{202e}".to_owned());
                }
            }
        }
        let text = text(&objects, "fast-data-3");
        assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
    }
}
