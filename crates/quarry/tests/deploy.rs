//! `deploy/`: complete, in step with the names in the code, and no more rights than needed.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "reads the committed manifests")]

use quarry_api::{admission::own_node, names};
use quarry_core::agent_daemon_set::confinement::{InstalledPolicy, gaps};
use quarry_operator::group;
use serde_json::{Value, json};
use std::{fs, path::PathBuf};

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

fn documents(file: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(&fs::read_to_string(directory().join(file)).unwrap()).unwrap()
}

/// Every object of deploy/rbac.
fn rbac() -> Vec<Value> {
    let mut files: Vec<String> = rbac_files();
    files.sort();
    files.iter().flat_map(|file| documents(&format!("rbac/{file}"))).collect()
}

fn rbac_files() -> Vec<String> {
    let entries = fs::read_dir(directory().join("rbac")).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn texts(value: &Value) -> Vec<String> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|item| item.as_str().map(str::to_owned))
        .collect()
}

#[test]
fn the_kustomization_names_every_file() {
    let mut listed = texts(&documents("kustomization.yaml")[0]["resources"]);
    let mut found: Vec<String> = fs::read_dir(directory())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".yaml") && name != "kustomization.yaml")
        .chain(rbac_files().into_iter().map(|name| format!("rbac/{name}")))
        .collect();
    listed.sort();
    found.sort();
    assert_eq!(listed, found);
}

#[test]
fn names_are_those_of_the_code() {
    assert_eq!(documents("namespace.yaml")[0]["metadata"]["name"], names::DEFAULT_NAMESPACE);
    let accounts: Vec<Value> =
        rbac().into_iter().filter(|object| object["kind"] == "ServiceAccount").collect();
    assert!(
        accounts.iter().any(|account| account["metadata"]["name"] == names::AGENT_SERVICE_ACCOUNT)
    );
    for object in rbac().iter().chain(&documents("operator.yaml")) {
        let namespace = &object["metadata"]["namespace"];
        assert!(namespace.is_null() || namespace == names::DEFAULT_NAMESPACE, "{object}");
    }
    let pod = &documents("operator.yaml")[0]["spec"]["template"]["spec"];
    assert!(
        accounts.iter().any(|account| account["metadata"]["name"] == pod["serviceAccountName"])
    );
    assert_eq!(pod["containers"][0]["args"], serde_json::json!(["operator"]));
}

/// Everything that a role of this name may write: (resource, verbs).
fn writes(name: &str) -> Vec<(String, Vec<String>)> {
    let roles = rbac()
        .into_iter()
        .filter(|object| object["metadata"]["name"] == name && object["rules"].is_array());
    let rules = roles.flat_map(|role| role["rules"].as_array().cloned().unwrap_or_default());
    rules
        .flat_map(|rule| {
            let verbs: Vec<String> = texts(&rule["verbs"])
                .into_iter()
                .filter(|verb| !["get", "list", "watch"].contains(&verb.as_str()))
                .collect();
            texts(&rule["resources"]).into_iter().map(move |resource| (resource, verbs.clone()))
        })
        .filter(|(_, verbs)| !verbs.is_empty())
        .collect()
}

#[test]
fn an_agent_writes_status_leases_and_events_only() {
    for (resource, verbs) in writes(names::AGENT_SERVICE_ACCOUNT) {
        let allowed: &[&str] = match resource.as_str() {
            "nodejobs/status" | "nodeinventories/status" => &["patch"],
            "leases" => &["create", "update", "patch"],
            "events" => &["create", "patch"],
            other => panic!("an agent may {verbs:?} {other}"),
        };
        assert!(verbs.iter().all(|verb| allowed.contains(&verb.as_str())), "{resource}: {verbs:?}");
    }
}

/// Every object of the kustomization, as an overlay with `namespace:` installs it: kustomize changes the namespace of
/// namespaced objects, the name of the Namespace, and the subjects that are service accounts of the same kustomization.
/// It changes no other text.
fn moved_to(namespace: &str) -> Vec<Value> {
    let files = texts(&documents("kustomization.yaml")[0]["resources"]);
    let mut all: Vec<Value> = files.iter().flat_map(|file| documents(file)).collect();
    let accounts: Vec<Value> = all
        .iter()
        .filter(|object| object["kind"] == "ServiceAccount")
        .map(|object| object["metadata"]["name"].clone())
        .collect();
    for object in &mut all {
        if object["metadata"]["namespace"].is_string() {
            object["metadata"]["namespace"] = json!(namespace);
        }
        if object["kind"] == "Namespace" {
            object["metadata"]["name"] = json!(namespace);
        }
        for subject in object["subjects"].as_array_mut().into_iter().flatten() {
            assert_eq!(subject["kind"], "ServiceAccount");
            assert!(accounts.contains(&subject["name"]), "{subject}");
            subject["namespace"] = json!(namespace);
        }
    }
    all
}

#[test]
fn an_overlay_with_another_namespace_confines_its_agents() {
    let all = moved_to("storage");
    for object in &all {
        let text = object.to_string();
        assert!(!text.contains(names::DEFAULT_NAMESPACE), "left behind by kustomize: {text}");
    }
    let find = |kind: &str| {
        let of_kind = all.iter().filter(|object| object["kind"] == kind);
        let mut named = of_kind.filter(|object| object["metadata"]["name"] == own_node::NAME);
        named.next().cloned().unwrap_or_else(|| panic!("no {kind} {}", own_node::NAME))
    };
    let installed = InstalledPolicy {
        policy: serde_json::from_value(find("ValidatingAdmissionPolicy")).unwrap(),
        binding: serde_json::from_value(find("ValidatingAdmissionPolicyBinding")).unwrap(),
    };
    assert_eq!(gaps("storage", &installed), []);
}

/// The operator starts no agents if it may not read the policy.
#[test]
fn the_operator_may_read_the_policy_on_agents_only() {
    let role = "quarry-operator-agentdaemonset";
    for resource in ["validatingadmissionpolicies", "validatingadmissionpolicybindings"] {
        assert_eq!(verbs(role, resource), ["get"], "{resource}");
    }
    let rules = rbac()
        .into_iter()
        .flat_map(|object| object["rules"].as_array().cloned().unwrap_or_default())
        .filter(|rule| texts(&rule["apiGroups"]).iter().any(|one| one.starts_with("admission")));
    for rule in rules {
        assert_eq!(rule["resourceNames"], json!([own_node::NAME]), "{rule}");
    }
}

/// Everything that an agent may write in all namespaces is covered by the policy; Leases are not among it.
#[test]
fn what_an_agent_writes_in_all_namespaces_is_in_the_policy() {
    let spec = own_node::policy().policy.spec.unwrap();
    let covered: Vec<String> = spec
        .match_constraints
        .and_then(|constraints| constraints.resource_rules)
        .iter()
        .flatten()
        .flat_map(|rule| rule.resources.clone().unwrap_or_default())
        .collect();
    for (resource, _) in writes(names::AGENT_SERVICE_ACCOUNT) {
        assert!(covered.contains(&resource), "{resource}");
    }
    assert!(verbs(names::AGENT_SERVICE_ACCOUNT, "leases").is_empty(), "in its namespace only");
    assert!(group_verbs(names::AGENT_SERVICE_ACCOUNT, "events.k8s.io", "events").is_empty());
}

/// Every verb that a role of this name has on a resource, in all namespaces.
fn verbs(name: &str, resource: &str) -> Vec<String> {
    let roles = rbac()
        .into_iter()
        .filter(|object| object["metadata"]["name"] == name && object["kind"] == "ClusterRole");
    let rules = roles.flat_map(|role| role["rules"].as_array().cloned().unwrap_or_default());
    rules
        .filter(|rule| texts(&rule["resources"]).iter().any(|one| one == resource))
        .flat_map(|rule| texts(&rule["verbs"]))
        .collect()
}

#[test]
fn claims_have_the_rights_that_they_need_and_no_more() {
    for (resource, wanted) in [
        ("localvolumesets", &["get", "list", "watch", "patch"][..]),
        ("localvolumes", &["get", "list", "watch", "patch"]),
        ("localvolumesets/status", &["patch"]),
        ("localvolumes/status", &["patch"]),
        ("localvolumesets/finalizers", &["update"]),
        ("localvolumes/finalizers", &["update"]),
        // Never changed: what an administrator has set in a class stays.
        ("storageclasses", &["get", "list", "watch", "create", "delete"]),
        ("persistentvolumeclaims", &["list"]),
    ] {
        assert_eq!(verbs("quarry-operator-deviceclaims", resource), wanted, "{resource}");
    }
    for resource in
        ["localvolumesets", "localvolumes", "persistentvolumes", "persistentvolumeclaims"]
    {
        assert_eq!(verbs(names::AGENT_SERVICE_ACCOUNT, resource), ["get"], "{resource}");
    }
}

#[test]
fn no_role_grants_everything() {
    for object in rbac() {
        assert!(!object.to_string().contains("\"*\""), "{}", object["metadata"]["name"]);
    }
}

/// The verbs of a group's own role, by API group and resource, in the operator's namespace or everywhere.
fn group_verbs(role: &str, api_group: &str, resource: &str) -> Vec<String> {
    let roles = rbac().into_iter().filter(|object| object["metadata"]["name"] == role);
    let rules = roles.flat_map(|role| role["rules"].as_array().cloned().unwrap_or_default());
    rules
        .filter(|rule| texts(&rule["apiGroups"]).iter().any(|one| one == api_group))
        .filter(|rule| texts(&rule["resources"]).iter().any(|one| one == resource))
        .flat_map(|rule| texts(&rule["verbs"]))
        .collect()
}

/// What the controllers of a group write to, and how. The rest is read.
fn needed_writes(group: &str) -> Vec<(&'static str, &'static [&'static str])> {
    match group {
        group::VOLUME => vec![
            ("volumes", &["patch"]),
            ("volumes/status", &["patch"]),
            ("volumes/finalizers", &["update"]),
            ("persistentvolumes", &["create", "patch", "delete"]),
            ("nodejobs", &["create"]),
        ],
        group::NODE_INVENTORY => vec![("nodeinventories", &["create", "patch", "delete"])],
        group::NODE_JOB => vec![("nodejobs", &["delete"])],
        group::AGENT_DAEMON_SET => {
            vec![("daemonsets", &["create", "patch", "delete"]), ("pods", &["delete"])]
        }
        group::DISCOVERY => vec![
            ("localvolumediscoveries/status", &["patch"]),
            ("localvolumediscoveryresults", &["create", "patch"]),
            ("localvolumediscoveryresults/status", &["patch"]),
        ],
        group::DEVICE_CLAIMS => vec![
            ("localvolumesets", &["patch"]),
            ("localvolumes", &["patch"]),
            ("localvolumesets/status", &["patch"]),
            ("localvolumes/status", &["patch"]),
            ("localvolumesets/finalizers", &["update"]),
            ("localvolumes/finalizers", &["update"]),
            ("persistentvolumes", &["create", "patch", "delete"]),
            ("storageclasses", &["create", "delete"]),
            ("nodejobs", &["create"]),
        ],
        group::HOSTS => vec![
            ("baremetalhosts", &["patch"]),
            ("baremetalhosts/status", &["patch"]),
            ("baremetalhosts/finalizers", &["update"]),
            ("hardwaredata", &["create", "patch", "delete"]),
            ("secrets", &["patch"]),
        ],
        group::DEVICE_SETS => vec![
            ("cephclusters/status", &["patch"]),
            ("cephclusters/finalizers", &["update"]),
            ("persistentvolumeclaims", &["create"]),
            ("jobs", &["create", "delete"]),
            ("deployments", &["create"]),
            ("configmaps", &["create", "patch"]),
        ],
        other => panic!("state what the controllers of group {other} write"),
    }
}

/// Neither more nor less than its controllers need.
#[test]
fn each_group_of_controllers_writes_only_what_it_needs() {
    let common = [
        ("events".to_owned(), vec!["create".to_owned(), "patch".to_owned()]),
        ("leases".to_owned(), ["create", "update", "patch"].map(str::to_owned).to_vec()),
    ];
    assert_eq!(writes("quarry-operator"), common);
    for group in quarry_operator::Registry::standard().groups() {
        let needed = needed_writes(group).into_iter().map(|(resource, verbs)| {
            (resource.to_owned(), verbs.iter().map(|verb| (*verb).to_owned()).collect())
        });
        let mut needed: Vec<(String, Vec<String>)> = needed.collect();
        let mut granted = writes(&format!("quarry-operator-{group}"));
        needed.sort();
        granted.sort();
        assert_eq!(granted, needed, "{group}");
    }
}

#[test]
fn each_group_of_controllers_has_its_own_role() {
    let registry = quarry_operator::Registry::standard();
    for group in registry.groups() {
        let role = format!("quarry-operator-{group}");
        for kind in ["ClusterRole", "ClusterRoleBinding"] {
            let has = |object: &Value| {
                object["metadata"]["name"] == role.as_str() && object["kind"] == kind
            };
            // Secrets are read only where hosts are driven, or OSDs run: by a component.
            let component = match group {
                group::HOSTS => Some("hosts/binding.yaml"),
                group::DEVICE_SETS => Some("ceph/binding.yaml"),
                _ => None,
            };
            let component = component.filter(|_| kind == "ClusterRoleBinding");
            assert_eq!(rbac().iter().any(has), component.is_none(), "{kind} {role}");
            assert!(component.is_none_or(|file| documents(file).iter().any(has)), "{role}");
        }
        for watched in registry.clone().select(&[group]).watched_kinds() {
            let (api_group, resource) = watched.resource();
            let common = group_verbs("quarry-operator", &api_group, &resource);
            let own = group_verbs(&role, &api_group, &resource);
            for verb in ["get", "list", "watch"] {
                let has = |verbs: &[String]| verbs.iter().any(|one| one == verb);
                assert!(has(&own) || has(&common), "{role} may not {verb} {resource}.{api_group}");
            }
        }
    }
    let roles = rbac().into_iter().filter(|object| object["kind"] == "ClusterRole");
    for role in roles.filter_map(|role| role["metadata"]["name"].as_str().map(str::to_owned)) {
        let group = role.strip_prefix("quarry-operator-");
        assert!(
            group.is_none_or(|group| registry.groups().contains(&group)),
            "{role} is of no group"
        );
    }
}

/// Inventories of hosts are written by the operator alone; who restores a backup is given the role for it by hand.
#[test]
fn no_other_role_writes_hardware_data() {
    let operator = format!("quarry-operator-{}", group::HOSTS);
    let restore = "quarry-hardwaredata-restore";
    let mut writers = Vec::new();
    for object in rbac() {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let granted = writes(&name);
        if granted.iter().any(|(resource, _)| resource == "hardwaredata") {
            writers.push(name);
        }
    }
    writers.sort();
    writers.dedup();
    assert_eq!(writers, [restore, operator.as_str()]);
    assert_eq!(verbs(restore, "hardwaredata"), ["create", "update", "delete"]);
    assert_eq!(writes(restore).len(), 1);
    for object in rbac() {
        assert_ne!(object["roleRef"]["name"], restore, "the role is bound to no subject");
        assert!(object["aggregationRule"].is_null(), "no role takes over rules of others");
        assert!(
            !object["metadata"]["labels"].to_string().contains("aggregate-to"),
            "no rule is added to another role"
        );
    }
}

#[test]
fn hosts_have_the_rights_that_they_need_and_no_more() {
    let role = format!("quarry-operator-{}", group::HOSTS);
    let mut needed: Vec<(String, Vec<String>)> = needed_writes(group::HOSTS)
        .into_iter()
        .map(|(resource, verbs)| {
            (resource.to_owned(), verbs.iter().map(|one| (*one).to_owned()).collect())
        })
        .collect();
    let mut granted = writes(&role);
    needed.sort();
    granted.sort();
    assert_eq!(granted, needed);
    // The Lease of baremetal-operator may be in any namespace.
    assert_eq!(verbs(&role, "leases"), ["get", "list"]);
    for resource in ["baremetalhosts", "hardwaredata", "secrets"] {
        assert_eq!(verbs(&role, resource)[..3], ["get", "list", "watch"], "{resource}");
    }
}

/// Rights that a group needs are in no role of another: only device sets need Jobs and Deployments, and only they and hosts
/// need Secrets.
#[test]
fn no_role_has_rights_of_groups_that_are_absent() {
    for object in rbac() {
        for rule in object["rules"].as_array().into_iter().flatten() {
            for resource in texts(&rule["resources"]) {
                let agents = format!("quarry-operator-{}", group::AGENT_DAEMON_SET);
                let own = object["metadata"]["name"] == agents.as_str()
                    && rule["resourceNames"].is_array()
                    && texts(&rule["verbs"]) == ["get"];
                assert_ne!(resource, "pods/exec");
                let is = |group: &str| {
                    object["metadata"]["name"] == format!("quarry-operator-{group}").as_str()
                };
                let (hosts, sets) = (is(group::HOSTS), is(group::DEVICE_SETS));
                assert!(resource != "jobs" || sets, "{resource}");
                assert!(resource != "secrets" || hosts || sets, "{resource}");
                assert!(resource != "deployments" || own || sets, "{resource}");
            }
        }
    }
}
