use super::{
    explain::{ResultView, find},
    samples::{lost, objects, set, with_cluster},
    *,
};
use serde_json::json;

fn lines(objects: &Objects) -> String {
    let found = list(objects);
    let mut lines: Vec<String> = found
        .rows
        .iter()
        .map(|row| {
            let id = row.id.map_or_else(|| "-".to_owned(), |id| id.to_string());
            format!(
                "{}/{} {}[{}] id={id} {} node={:?} pvc={:?} size={:?} {:?} {:?}",
                row.namespace,
                row.cluster,
                row.set,
                row.index,
                row.state,
                row.node,
                row.pvc,
                row.size,
                row.message,
                row.tone
            )
        })
        .collect();
    lines.extend(found.notes);
    lines.join("\n")
}

#[test]
fn every_osd_has_state_reason_and_age() {
    insta::assert_snapshot!(lines(&objects()));
    let rows = list(&objects()).rows;
    assert!(rows.iter().filter(|row| row.pvc.is_some()).all(|row| row.since.is_some()));
    let ages: BTreeSet<_> = rows.iter().map(|row| row.since).collect();
    assert!(ages.len() > 3, "{ages:?}");
}

#[test]
fn lower_count_and_removed_set_are_notes() {
    insta::assert_snapshot!(lines(&with_cluster(
        &json!([set("fast", 2, &["data"])]),
        Some(("OSDsFailing", "x"))
    )));
    let removed = list(&with_cluster(&json!([set("slow", 1, &["data"])]), None));
    assert_eq!(removed.rows.len(), 1, "only the new one");
    insta::assert_snapshot!(removed.notes.join("\n"));
}

#[test]
fn a_blocked_cluster_or_an_invalid_set_says_why() {
    let message = "Deployment rook/rook-ceph-operator serves this cluster, and nothing is done here; scale it to 0 to have Quarry serve it";
    let sets = json!([set("fast", 12, &["data"])]);
    let found = with_cluster(&sets, Some(("ServedByRook", message)));
    assert_eq!(
        list(&found).notes,
        [format!("CephCluster rook-ceph/store: ServedByRook: {message}")]
    );
    let new = &find(&found, "rook-ceph", &Which::Claim("fast-data-9".into()))[0];
    assert_eq!(
        new.waits_for.as_deref(),
        Some(
            "the cluster: Deployment rook/rook-ceph-operator serves this cluster, and nothing is done here"
        )
    );
    assert_eq!(new.remedies[0].text, "scale it to 0 to have Quarry serve it");
    let mut invalid = set("fast", 12, &["data"]);
    invalid["encrypted"] = json!(true);
    let found = list(&with_cluster(&json!([invalid]), Some(("Progressing", ""))));
    assert!(found.rows.iter().all(|row| row.pvc.is_some()), "nothing new is promised");
    assert!(found.notes[0].contains("storageClassDeviceSets[0].encrypted"), "{:?}", found.notes);
}

#[test]
fn many_new_osds_are_counted_not_listed() {
    let found =
        list(&with_cluster(&json!([set("fast", 1000, &["data"])]), Some(("Progressing", ""))));
    assert_eq!(found.rows.len(), 10 + MOST_NEW);
    assert_eq!(found.notes, ["CephCluster rook-ceph/store: set fast: 940 more OSDs follow"]);
}

#[test]
fn a_lost_pvc_leaves_an_osd_with_a_problem() {
    let rows = list(&lost()).rows;
    assert_eq!((rows[0].state, rows[0].id, rows[0].pvc.as_deref()), ("ClaimLost", Some(0), None));
    assert_eq!(rows[0].message.as_deref(), Some("the PVC of data (data) is gone"));
    let explained = &find(&lost(), "rook-ceph", &Which::parse("osd.0"))[0];
    assert!(explained.remedies[0].text.contains("remove the OSD from Ceph"));
    assert_eq!(explained.objects[0].text, "none for template data");
}

#[test]
fn every_state_says_what_it_waits_for() {
    let mut text = Vec::new();
    for row in list(&objects()).rows {
        let Some(name) = row.pvc else { continue };
        let found = find(&objects(), "rook-ceph", &Which::Claim(name));
        let [one] = found.as_slice() else { panic!("{found:?}") };
        text.push(format!(
            "{} {:?}\n  waits for: {:?}\n  {:?}",
            one.row.state,
            one.problem,
            one.waits_for,
            one.remedies.iter().map(|remedy| &remedy.text).collect::<Vec<_>>()
        ));
    }
    insta::assert_snapshot!(text.join("\n"));
}

#[test]
fn an_osd_is_found_by_id_and_by_its_pvc() {
    assert_eq!(Which::parse("3"), Which::Id(3));
    assert_eq!(Which::parse("osd.3"), Which::Id(3));
    assert_eq!(Which::parse("fast-data-3"), Which::Claim("fast-data-3".into()));
    let by_id = find(&objects(), "rook-ceph", &Which::Id(6));
    assert_eq!(by_id, find(&objects(), "rook-ceph", &Which::Claim("fast-data-6".into())));
    assert!(matches!(&by_id[0].result, ResultView::Succeeded { id: 6, recorded: Some(_), .. }));
    assert!(find(&objects(), "other", &Which::Id(6)).is_empty());
    assert!(find(&objects(), "rook-ceph", &Which::Id(66)).is_empty());
}
