use super::super::{
    Stage,
    owner::{ClassUse, Observed, Plan, Violation, check, plan},
    status::{self, NodePart},
};
use super::{now, set};
use crate::device_claim::demand::NodeMatch;
use quarry_api::names;
use serde_json::json;

fn observed(terminating: bool, finalizers: &[&str], stages: &[Stage]) -> Observed {
    let mut demand = set("fast", 1, json!({}));
    demand.terminating = terminating;
    let part = NodePart {
        node: "n1".into(),
        covers: NodeMatch::Yes,
        problem: None,
        claims: stages.iter().map(|stage| ("sda".to_owned(), stage.clone())).collect(),
        outdated: Vec::new(),
        rows: Vec::new(),
    };
    let status = status::Observed {
        demand,
        in_namespace: true,
        namespace: "quarry-system".into(),
        parts: vec![part],
        conditions: Vec::new(),
    };
    Observed {
        status,
        finalizers: finalizers.iter().map(|one| (*one).to_owned()).collect(),
        resource_version: "7".into(),
        first_lapse: None,
        classes: vec![
            ClassUse { name: "free".into(), uid: "1".into(), ..ClassUse::default() },
            ClassUse {
                name: "used".into(),
                uid: "2".into(),
                requested: true,
                ..ClassUse::default()
            },
        ],
    }
}

#[test]
fn the_finalizer_comes_first_and_goes_last() {
    let own = names::OWNER_FINALIZER;
    let added = plan(&observed(false, &["other/x"], &[]), now());
    assert_eq!(added, Plan::SetFinalizers(vec!["other/x".into(), own.into()]));
    let seen = observed(true, &["other/x", own], &[Stage::Bound(String::new())]);
    assert!(matches!(plan(&seen, now()), Plan::Report(_)), "a device claim is left");
    let seen = observed(true, &["other/x", own], &[]);
    let Plan::Release { delete_classes, finalizers } = plan(&seen, now()) else { panic!() };
    assert_eq!(finalizers, ["other/x"]);
    assert_eq!(delete_classes, [seen.classes[0].clone()], "only the unused class");
    assert!(matches!(plan(&observed(false, &[own], &[]), now()), Plan::Report(_)));
}

#[test]
fn check_reports_every_violation_of_an_owner_plan() {
    let own = names::OWNER_FINALIZER;
    let seen = observed(false, &["other/x", own], &[Stage::Available]);
    let wrong = Plan::Release { delete_classes: vec![seen.classes[1].clone()], finalizers: vec![] };
    let all = [
        Violation::ReleasedAlive,
        Violation::ReleasedWithClaims,
        Violation::OtherFinalizer,
        Violation::UsedClass("used".into()),
    ];
    assert_eq!(check(&seen, &wrong), all);
    let deleted = observed(true, &[own], &[]);
    let again = Plan::SetFinalizers(vec![own.into()]);
    assert_eq!(check(&deleted, &again), [Violation::HeldWhileDeleted]);
    for seen in [observed(false, &[], &[]), deleted, observed(false, &[own], &[])] {
        assert_eq!(check(&seen, &plan(&seen, now())), []);
    }
}
