//! `quarry hosts`: the list, once or with every change. Rows are `quarry_view::hosts`.

use super::{
    namespace, read, read_rival,
    table::{self, Style},
    warn_of_rival, watch,
};
use crate::{
    cli::{ConnectArgs, HostsArgs},
    connect::Cluster,
    output::{self, Format},
};
use jiff::Timestamp;
use quarry_view::{
    Tone,
    hosts::{self, HostRow},
};

pub async fn run(connect: &ConnectArgs, args: &HostsArgs) -> anyhow::Result<()> {
    let cluster = Cluster::connect(connect).await?;
    let place = match args.all_namespaces {
        true => None,
        false => Some(namespace(&cluster, args.namespace.as_deref())),
    };
    let style = Style {
        wide: args.output == Format::Wide,
        namespaces: args.all_namespaces,
        colors: output::colors(),
        width: output::width(),
    };
    let snapshot = read(&cluster, place).await?;
    let rival = read_rival(&cluster).await;
    if matches!(args.output, Format::Table | Format::Wide) {
        warn_of_rival(rival.as_ref());
    }
    if args.watch {
        return watch::run(&cluster, args.output, style, place, (snapshot, rival)).await;
    }
    let rows = hosts::list(&snapshot, place, rival.as_ref());
    match args.output {
        Format::Json => output::print(&output::json(&rows)?),
        Format::Yaml => output::print(&output::yaml(&rows)?),
        Format::Table | Format::Wide if rows.is_empty() => {
            none(place, snapshot.hosts.len());
            Ok(())
        }
        Format::Table | Format::Wide => {
            output::print(&table::render(&rows, style, Timestamp::now()))?;
            hint(&rows);
            Ok(())
        }
    }
}

fn none(place: Option<&str>, elsewhere: usize) {
    match place {
        Some(place) => output::note(&format!("no BareMetalHosts in namespace {place}")),
        None => output::note("no BareMetalHosts"),
    }
    if elsewhere > 0 {
        output::hint("run `quarry hosts -A` to list those of all namespaces");
    } else {
        output::hint("create a BareMetalHost and a Secret with the credentials of its BMC");
    }
}

/// Only in a terminal: a pipe gets no hints.
fn hint(rows: &[HostRow]) {
    let stuck = rows.iter().find(|row| row.tone == Tone::Bad);
    if let Some(row) = stuck.filter(|_| output::is_interactive()) {
        output::hint(&format!(
            "run `quarry explain host/{} -n {}` for the whole error and what to do",
            row.name, row.namespace
        ));
    }
}
