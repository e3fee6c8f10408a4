//! Which nodes a selector selects, and on which of them a pod may run: the rules of Kubernetes as pure functions.
//!
//! Terms are ORed, requirements inside a term ANDed; an empty term matches nothing; no selector means every node.
//! A selector that the API server would refuse in a pod is reported with its field before it is used.

use k8s_openapi::api::core::v1::{
    Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Taint, Toleration,
};
use std::collections::BTreeMap;

/// The only field that `matchFields` supports.
pub const NAME_FIELD: &str = "metadata.name";

/// The problems of a selector, with their fields; empty: the selector is valid.
pub fn problems(selector: &NodeSelector, at: &str) -> Vec<String> {
    let mut found = Vec::new();
    if selector.node_selector_terms.is_empty() {
        found.push(format!("{at}.nodeSelectorTerms is empty and selects no node; add a term, or remove the selector to select all nodes"));
    }
    let is_empty = |term: &NodeSelectorTerm| {
        [&term.match_expressions, &term.match_fields]
            .iter()
            .all(|list| list.as_ref().is_none_or(Vec::is_empty))
    };
    if !selector.node_selector_terms.is_empty() && selector.node_selector_terms.iter().all(is_empty)
    {
        found.push(format!("{at}.nodeSelectorTerms[0] is empty and matches no node; add a requirement, or remove the selector to select all nodes"));
    }
    for (index, term) in selector.node_selector_terms.iter().enumerate() {
        let at = format!("{at}.nodeSelectorTerms[{index}]");
        for (index, requirement) in term.match_expressions.iter().flatten().enumerate() {
            found.extend(
                problem(requirement, false)
                    .map(|what| format!("{at}.matchExpressions[{index}].{what}")),
            );
        }
        for (index, requirement) in term.match_fields.iter().flatten().enumerate() {
            found.extend(
                problem(requirement, true).map(|what| format!("{at}.matchFields[{index}].{what}")),
            );
        }
    }
    found
}

fn problem(requirement: &NodeSelectorRequirement, field: bool) -> Option<String> {
    let values = requirement.values.as_deref().unwrap_or_default();
    let NodeSelectorRequirement { key, operator, .. } = requirement;
    if field {
        if key != NAME_FIELD {
            return Some(format!("key is {key:?}; use {NAME_FIELD}, the only supported field"));
        }
        return match (operator.as_str(), values.len()) {
            ("In" | "NotIn", 1) => None,
            ("In" | "NotIn", _) => {
                Some("values must contain exactly one name; use one term per node".to_owned())
            }
            _ => Some(format!("operator is {operator:?}; use In or NotIn for a field")),
        };
    }
    if key.is_empty() {
        return Some("key is empty; set the name of a label".to_owned());
    }
    match operator.as_str() {
        "In" | "NotIn" if values.is_empty() => {
            Some(format!("values is empty; add a value for {operator}"))
        }
        "In" | "NotIn" => None,
        "Exists" | "DoesNotExist" if values.is_empty() => None,
        "Exists" | "DoesNotExist" => {
            Some(format!("values must be empty for {operator}; remove them"))
        }
        "Gt" | "Lt" => match values {
            [one] if one.parse::<i64>().is_ok() => None,
            [one] => Some(format!("values contains {one:?}; use an integer for {operator}")),
            _ => Some(format!("values must contain exactly one integer for {operator}")),
        },
        other => {
            Some(format!("operator is {other:?}; use In, NotIn, Exists, DoesNotExist, Gt or Lt"))
        }
    }
}

/// The same for tolerations.
pub fn toleration_problems(tolerations: &[Toleration], at: &str) -> Vec<String> {
    let problem = |toleration: &Toleration| {
        let given = |text: &Option<String>| text.as_deref().is_some_and(|text| !text.is_empty());
        let effect = toleration.effect.as_deref().unwrap_or_default();
        match toleration.operator.as_deref() {
            Some("Exists") if given(&toleration.value) => {
                return Some("value must be empty for Exists; remove it".to_owned());
            }
            Some("Exists") => {}
            None | Some("" | "Equal") if !given(&toleration.key) => {
                return Some(
                    "key is empty; set the key of a taint, or use the operator Exists for all taints"
                        .to_owned(),
                );
            }
            None | Some("" | "Equal") => {}
            Some(other) => {
                return Some(format!("operator is {other:?}; use Exists or Equal"));
            }
        }
        if !["", "NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
            return Some(format!(
                "effect is {effect:?}; use NoSchedule, PreferNoSchedule or NoExecute, or remove it for all effects"
            ));
        }
        (toleration.toleration_seconds.is_some() && effect != "NoExecute")
            .then(|| "tolerationSeconds needs the effect NoExecute".to_owned())
    };
    tolerations
        .iter()
        .enumerate()
        .filter_map(|(index, toleration)| Some(format!("{at}[{index}].{}", problem(toleration)?)))
        .collect()
}

/// Whether the selector selects this node. Invalid terms match nothing.
pub fn selects(selector: Option<&NodeSelector>, node: &Node) -> bool {
    selector.is_none_or(|selector| {
        selector.node_selector_terms.iter().any(|term| term_matches(term, node))
    })
}

fn term_matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    let (expressions, fields) = (
        term.match_expressions.as_deref().unwrap_or_default(),
        term.match_fields.as_deref().unwrap_or_default(),
    );
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    let none = BTreeMap::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&none);
    let name = node.metadata.name.as_deref().unwrap_or_default();
    expressions.iter().all(|requirement| {
        problem(requirement, false).is_none()
            && holds(requirement, labels.get(&requirement.key).map(String::as_str))
    }) && fields
        .iter()
        .all(|requirement| problem(requirement, true).is_none() && holds(requirement, Some(name)))
}

fn holds(requirement: &NodeSelectorRequirement, found: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let compare = |wanted: fn(&i64, &i64) -> bool| {
        let found = found.and_then(|found| found.parse::<i64>().ok());
        let limit = values.first().and_then(|value| value.parse::<i64>().ok());
        matches!((found, limit), (Some(found), Some(limit)) if wanted(&found, &limit))
    };
    match requirement.operator.as_str() {
        "In" => found.is_some_and(|found| values.iter().any(|value| value == found)),
        // A node without the label is not in the set.
        "NotIn" => found.is_none_or(|found| !values.iter().any(|value| value == found)),
        "Exists" => found.is_some(),
        "DoesNotExist" => found.is_none(),
        "Gt" => compare(i64::gt),
        "Lt" => compare(i64::lt),
        _ => false,
    }
}

/// Taints that Kubernetes puts on a node that is not healthy or is being drained. DaemonSet pods stay there, and they do
/// not express whether the node is selected.
const TROUBLE: &[&str] = &[
    "not-ready",
    "unreachable",
    "disk-pressure",
    "memory-pressure",
    "pid-pressure",
    "unschedulable",
    "network-unavailable",
];

/// The first taint that keeps a DaemonSet pod with these tolerations away from the node.
pub fn untolerated<'a>(node: &'a Node, tolerations: &[Toleration]) -> Option<&'a Taint> {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    taints
        .iter()
        .filter(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"))
        .filter(|taint| {
            !taint
                .key
                .strip_prefix("node.kubernetes.io/")
                .is_some_and(|trouble| TROUBLE.contains(&trouble))
        })
        .find(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)))
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let is = |mine: &Option<String>, theirs: &str| {
        mine.as_deref().is_none_or(|mine| mine.is_empty() || mine == theirs)
    };
    if !is(&toleration.effect, &taint.effect) || !is(&toleration.key, &taint.key) {
        return false;
    }
    match toleration.operator.as_deref() {
        Some("Exists") => true,
        // An empty key is valid for Exists only.
        None | Some("" | "Equal") => {
            toleration.key.as_deref().is_some_and(|key| !key.is_empty())
                && toleration.value.as_deref().unwrap_or_default()
                    == taint.value.as_deref().unwrap_or_default()
        }
        Some(_) => false,
    }
}

/// A taint in kubectl's notation: `key=value:effect`.
pub fn taint_text(taint: &Taint) -> String {
    let value = taint
        .value
        .as_deref()
        .filter(|value| !value.is_empty())
        .map(|value| format!("={value}"))
        .unwrap_or_default();
    format!("{}{value}:{}", taint.key, taint.effect)
}

/// The selector in a line, for a condition.
pub fn selector_text(selector: &NodeSelector) -> String {
    let requirement = |requirement: &NodeSelectorRequirement| {
        let values = requirement.values.as_deref().unwrap_or_default().join(", ");
        let values = if values.is_empty() { String::new() } else { format!(" ({values})") };
        format!("{} {}{values}", requirement.key, requirement.operator)
    };
    let term = |term: &NodeSelectorTerm| {
        let all: Vec<String> = term
            .match_expressions
            .iter()
            .flatten()
            .chain(term.match_fields.iter().flatten())
            .map(requirement)
            .collect();
        if all.is_empty() { "an empty term".to_owned() } else { all.join(" and ") }
    };
    selector.node_selector_terms.iter().map(term).collect::<Vec<_>>().join(", or ")
}

/// The labels that the selector requires and their values on nodes: what it could select instead.
pub fn known_values<'a>(
    selector: &NodeSelector,
    nodes: impl Iterator<Item = &'a Node> + Clone,
    at_most: usize,
) -> Vec<String> {
    let mut keys: Vec<&str> = selector
        .node_selector_terms
        .iter()
        .flat_map(|term| term.match_expressions.iter().flatten())
        .map(|r| r.key.as_str())
        .collect();
    keys.sort_unstable();
    keys.dedup();
    keys.into_iter()
        .map(|key| {
            let mut values: Vec<&str> = nodes
                .clone()
                .filter_map(|node| node.metadata.labels.as_ref()?.get(key).map(String::as_str))
                .collect();
            values.sort_unstable();
            values.dedup();
            let more = if values.len() > at_most { ", …" } else { "" };
            match values.as_slice() {
                [] => format!("no node has the label {key}"),
                _ => format!(
                    "the label {key} exists with {}{more}",
                    values.iter().take(at_most).copied().collect::<Vec<_>>().join(", ")
                ),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn node(name: &str, labels: Value, taints: Value) -> Node {
        serde_json::from_value(
            json!({"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}}),
        )
        .unwrap()
    }

    fn selector(terms: Value) -> NodeSelector {
        serde_json::from_value(json!({"nodeSelectorTerms": terms})).unwrap()
    }

    #[test]
    fn every_operator_selects_as_kubernetes_does() {
        let n1 = node("n1", json!({"disk": "ssd", "slots": "12", "rack": ""}), json!([]));
        let requires = |key: &str, operator: &str, values: Value| json!([{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]);
        for (terms, wanted) in [
            (requires("disk", "In", json!(["hdd", "ssd"])), true),
            (requires("disk", "In", json!(["hdd"])), false),
            (requires("none", "In", json!(["hdd"])), false),
            (requires("disk", "NotIn", json!(["hdd"])), true),
            (requires("disk", "NotIn", json!(["ssd"])), false),
            (requires("none", "NotIn", json!(["ssd"])), true),
            (requires("rack", "Exists", Value::Null), true),
            (requires("none", "Exists", Value::Null), false),
            (requires("none", "DoesNotExist", Value::Null), true),
            (requires("disk", "DoesNotExist", Value::Null), false),
            (requires("slots", "Gt", json!(["11"])), true),
            (requires("slots", "Gt", json!(["12"])), false),
            (requires("slots", "Lt", json!(["13"])), true),
            (requires("slots", "Lt", json!(["-1"])), false),
            (requires("disk", "Gt", json!(["1"])), false),
            (requires("none", "Lt", json!(["1"])), false),
            (requires("disk", "Matches", json!(["ssd"])), false),
            (json!([]), false),
            (json!([{}]), false),
            (
                json!([{}, {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]),
                true,
            ),
            (
                json!([{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]}]),
                false,
            ),
            (
                json!([{"matchFields": [{"key": "metadata.uid", "operator": "In", "values": ["n1"]}]}]),
                false,
            ),
            (
                json!([{
                    "matchExpressions": [{"key": "disk", "operator": "Exists"}],
                    "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}],
                }]),
                false,
            ),
            (
                json!([{"matchExpressions": [{"key": "disk", "operator": "Exists"}, {"key": "none", "operator": "Exists"}]}]),
                false,
            ),
        ] {
            assert_eq!(selects(Some(&selector(terms.clone())), &n1), wanted, "{terms}");
        }
        assert!(selects(None, &n1), "no selector selects all");
    }

    #[test]
    fn an_invalid_selector_is_reported_with_its_field() {
        let problem = |terms: Value| problems(&selector(terms), "spec.nodeSelector").join("\n");
        let all = [
                problem(json!([])),
                problem(json!([{}, {}])),
                problem(json!([{"matchExpressions": [{"key": "a", "operator": "Has"}, {"key": "a", "operator": "In"}, {"key": "", "operator": "Exists"}]}])),
                problem(json!([{"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["x"]}, {"key": "a", "operator": "Lt", "values": ["1", "2"]}]}])),
                problem(json!([{}, {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]}])),
                problem(json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a", "b"]}, {"key": "spec.x", "operator": "In", "values": ["a"]}]}])),
                problem(json!([{"matchFields": [{"key": "metadata.name", "operator": "Exists"}]}])),
            ]
        .join("\n---\n");
        insta::assert_snapshot!(all);
        assert_eq!(
            problem(
                json!([{"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["5"]}]}])
            ),
            ""
        );
    }

    #[test]
    fn an_invalid_toleration_is_reported_with_its_field() {
        for (toleration, problem) in [
            (json!({"operator": "Exists"}), ""),
            (json!({"key": "a", "value": "b", "effect": "NoExecute", "tolerationSeconds": 5}), ""),
            (
                json!({"key": "a", "operator": "Exists", "value": "b"}),
                "spec.tolerations[0].value must be empty",
            ),
            (json!({"value": "b"}), "spec.tolerations[0].key is empty"),
            (json!({"key": "a", "operator": "Like"}), "spec.tolerations[0].operator is \"Like\""),
            (json!({"key": "a", "effect": "Never"}), "spec.tolerations[0].effect is \"Never\""),
            (
                json!({"key": "a", "effect": "NoSchedule", "tolerationSeconds": 5}),
                "spec.tolerations[0].tolerationSeconds needs",
            ),
        ] {
            let found = toleration_problems(
                &[serde_json::from_value(toleration).unwrap()],
                "spec.tolerations",
            )
            .join("; ");
            assert!(
                found.starts_with(problem) && found.is_empty() == problem.is_empty(),
                "{problem}: {found}"
            );
        }
    }

    #[test]
    fn taints_keep_a_pod_away_unless_it_tolerates_them() {
        let taint = json!([{"key": "role", "value": "cp", "effect": "NoSchedule"}]);
        for (taints, tolerations, kept_away) in [
            (json!([]), json!([]), false),
            (taint.clone(), json!([]), true),
            (taint.clone(), json!([{"operator": "Exists"}]), false),
            (taint.clone(), json!([{"key": "role", "operator": "Exists"}]), false),
            (taint.clone(), json!([{"key": "role", "value": "cp"}]), false),
            (taint.clone(), json!([{"key": "role", "operator": "Equal", "value": "db"}]), true),
            (
                taint.clone(),
                json!([{"key": "role", "operator": "Exists", "effect": "NoExecute"}]),
                true,
            ),
            (taint.clone(), json!([{"operator": "Equal", "value": "cp"}]), true),
            (taint.clone(), json!([{"key": "role", "operator": "Like"}]), true),
            (json!([{"key": "role", "effect": "PreferNoSchedule"}]), json!([]), false),
            (json!([{"key": "role", "effect": "NoExecute"}]), json!([]), true),
            (
                json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]),
                json!([]),
                false,
            ),
            (
                json!([{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]),
                json!([]),
                false,
            ),
            (
                json!([{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]),
                json!([]),
                true,
            ),
        ] {
            let node = node("n1", json!({}), taints.clone());
            let tolerations: Vec<Toleration> = serde_json::from_value(tolerations).unwrap();
            assert_eq!(
                untolerated(&node, &tolerations).is_some(),
                kept_away,
                "{taints} {tolerations:?}"
            );
        }
    }

    #[test]
    fn a_selector_is_described_with_existing_labels() {
        let asked = selector(json!([
            {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["nvme", "ssd"]}, {"key": "rack", "operator": "Exists"}]},
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n9"]}]},
        ]));
        assert_eq!(
            selector_text(&asked),
            "disk In (nvme, ssd) and rack Exists, or metadata.name In (n9)"
        );
        let nodes = [
            node("n1", json!({"disk": "hdd"}), json!([])),
            node("n2", json!({"disk": "tape"}), json!([])),
        ];
        assert_eq!(
            known_values(&asked, nodes.iter(), 1),
            ["the label disk exists with hdd, …", "no node has the label rack"]
        );
    }
}
