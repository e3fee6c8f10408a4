//! `quarry plan`: which devices each node would give, and why not the others. Changes nothing.
//!
//! Owns: reading (file, cluster or this machine) and the text around the table. The plan is `quarry_view::sets::plan`.

use super::{file, list::check_node, local, table};
use crate::{
    cli::{ConnectArgs, PlanArgs, PlanFormat},
    connect::Cluster,
    output, sanitize, snapshot,
};
use anyhow::anyhow;
use jiff::Timestamp;
use quarry_view::{
    Snapshot,
    sets::{
        self, OwnerSummary, OwnerView,
        plan::{OwnerObject, PlanTotal, PlanView, adopt, plan, summaries_of},
    },
};
use std::path::Path;

pub async fn run(connect: &ConnectArgs, args: &PlanArgs) -> anyhow::Result<()> {
    let mut notes = Vec::new();
    let objects = match &args.file {
        Some(path) => {
            let stdin = path == Path::new("-");
            let name = path.display().to_string();
            let name = if stdin { "standard input".to_owned() } else { name };
            let contents = file::parse(&file::read_text(path)?, &name, &args.namespace).await?;
            let warnings = contents.warnings.into_iter();
            notes.extend(warnings.map(|warning| format!("warning: {warning}")));
            contents.objects
        }
        None => Vec::new(),
    };
    let local = args.local || args.host_root.is_some();
    let mut snapshot = if local {
        let root = args.host_root.as_deref().unwrap_or(Path::new("/"));
        let paths: Vec<String> = objects.iter().flat_map(OwnerObject::paths).collect();
        let (snapshot, problems) = local::snapshot(root, &args.namespace, &paths)?;
        notes.extend(problems);
        notes.push("this machine is planned as a node: nodeSelector, tolerations and the device claims of a cluster are ignored".to_owned());
        snapshot
    } else {
        snapshot::read(&Cluster::connect(connect).await?, &args.namespace).await?
    };
    let now = Timestamp::now();
    check_node(&snapshot, args.node.as_deref())?;
    let mut uids = Vec::new();
    for object in objects {
        let object = if local { object.without_node_selector() } else { object };
        uids.push(adopt(&mut snapshot, object, now));
    }
    if let Some(owner) = &args.target {
        let uid = sets::live(&snapshot, owner);
        uids.push(uid.ok_or_else(|| anyhow!("{}", sets::missing(&snapshot, owner)))?);
    }
    let summaries = summaries_of(&mut snapshot, &uids, now);
    notes.iter().for_each(|note| output::note(note));
    match args.output {
        PlanFormat::Json => {
            let mut owners: Vec<OwnerView> = summaries.iter().map(OwnerView::new).collect();
            if let Some(node) = &args.node {
                owners.iter_mut().for_each(|owner| owner.nodes.retain(|one| one.node == *node));
            }
            output::print(&output::json(&owners)?)
        }
        PlanFormat::Table => print_tables(&snapshot, &summaries, args.node.as_deref()),
    }
}

fn print_tables(
    snapshot: &Snapshot,
    summaries: &[OwnerSummary],
    node: Option<&str>,
) -> anyhow::Result<()> {
    let (colors, width) = (output::colors(), output::width());
    let plans = summaries.iter().map(|summary| plan(snapshot, summary, node));
    let texts: Vec<String> = plans.map(|plan| render(&plan, colors, width)).collect();
    output::print(&texts.join("\n"))
}

fn render(plan: &PlanView, colors: bool, width: Option<usize>) -> String {
    let mut text = output::Lines::default();
    text.add(&sanitize::line(&plan.owner));
    for field in &plan.selection {
        text.add(&format!("  {:<9} {}", field.name, sanitize::line(&field.text)));
    }
    for problem in &plan.problems {
        text.add(&sanitize::line(&format!("  problem   {problem}")));
    }
    if !plan.problems.is_empty() {
        text.add("  it takes no devices until its spec is fixed");
    }
    if plan.terminating {
        text.add("  it is being deleted: it takes no new devices");
    }
    text.add("");
    if !plan.rows.is_empty() {
        text.add(&table::render_plan(&plan.rows, colors, width));
    }
    text.add(&total_text(plan.total));
    if plan.not_selected > 0 {
        text.add(&format!("not selected: {} of {} nodes", plan.not_selected, plan.nodes));
    }
    for class in &plan.classes {
        text.add(&sanitize::line(&class.text));
    }
    text.into_text()
}

fn total_text(total: PlanTotal) -> String {
    let PlanTotal { selected, claimed, waiting, not_used } = total;
    let has = if claimed > 0 { format!(", has {claimed} already") } else { String::new() };
    let waiting = if waiting > 0 { format!(", waits for {waiting} more") } else { String::new() };
    format!("gets {selected}{has}{waiting}; not used: {not_used}")
}
