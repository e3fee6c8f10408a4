//! An agent's token gives access to the objects of its own node only; it cannot create
//! PersistentVolumes or NodeJobs.

use quarry_tests::lab::{NAMESPACE, NODE, apply, get, installed, kubectl, text, try_run, until};
use std::time::Duration;

/// Runs kubectl with a token instead of the administrator's certificate.
fn with_token(token: &str, arguments: &[&str], input: Option<&str>) -> Result<String, String> {
    let server = kubectl(&[
        "config",
        "view",
        "--minify",
        "--raw",
        "-o",
        "jsonpath={.clusters[0].cluster.server}",
    ]);
    let base = [
        "--kubeconfig=/dev/null",
        "--server",
        &server,
        "--insecure-skip-tls-verify",
        "--token",
        token,
    ];
    let output = try_run("kubectl", &[&base, arguments].concat(), input);
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// As an agent does it: kubectl would read the subresource first, which an agent may not.
fn patch_status(token: &str, node: &str, change: &str) -> Result<(), String> {
    let server = kubectl(&[
        "config",
        "view",
        "--minify",
        "--raw",
        "-o",
        "jsonpath={.clusters[0].cluster.server}",
    ]);
    let change: serde_json::Value =
        serde_json::from_str(change).map_err(|error| error.to_string())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let mut config = kube::Config::new(server.parse().map_err(|error| format!("{error}"))?);
        config.accept_invalid_certs = true;
        config.auth_info.token = Some(token.to_owned().into());
        let client = kube::Client::try_from(config).map_err(|error| error.to_string())?;
        let api: kube::Api<quarry_api::NodeInventory> = kube::Api::all(client);
        let patched = api
            .patch_status(
                node,
                &kube::api::PatchParams::default(),
                &kube::api::Patch::Merge(change),
            )
            .await;
        patched.map(|_| ()).map_err(|error| error.to_string())
    })
}

#[test]
fn agent_token_changes_only_its_own_node() {
    installed();
    apply("apiVersion: v1\nkind: Node\nmetadata: {name: other-node}\n");
    until("the other node has its inventory", Duration::from_secs(30), || {
        get(&["nodeinventory", "other-node"]).ok_or_else(|| "none".to_owned())
    });
    let on_node = format!("spec.nodeName={NODE}");
    let agents = [
        "-n",
        NAMESPACE,
        "get",
        "pods",
        "-l",
        "app.kubernetes.io/name=quarry-agent",
        "--field-selector",
        &on_node,
        "-o",
    ];
    // The previous test may have left a terminating pod: the token must belong to a pod that stays.
    let token = until("an agent's token", Duration::from_secs(60), || {
        let pods = kubectl(
            &[
                &agents[..],
                &["jsonpath={range .items[*]}{.metadata.name}={.metadata.deletionTimestamp} {end}"],
            ]
            .concat(),
        );
        let staying: Vec<&str> =
            pods.split_whitespace().filter_map(|pod| pod.strip_suffix('=')).collect();
        let [pod] = staying.as_slice() else { return Err(pods) };
        let created = try_run(
            "kubectl",
            &[
                "-n",
                NAMESPACE,
                "create",
                "token",
                "quarry-agent",
                "--bound-object-kind",
                "Pod",
                "--bound-object-name",
                pod,
            ],
            None,
        );
        if created.status.success() {
            Ok(text(&created.stdout).trim().to_owned())
        } else {
            Err(text(&created.stderr))
        }
    });
    let change = "{\"status\":{\"agentVersion\":\"tampered\"}}";
    let patch = |token: &str, node: &str| patch_status(token, node, change);
    patch(&token, NODE).expect("its own node");
    let refused = patch(&token, "other-node").unwrap_err();
    assert!(refused.contains("only the objects of its own node"), "{refused}");
    assert!(get(&["nodeinventory", "other-node"]).unwrap()["status"].is_null());

    let job = "apiVersion: quarry.dev/v1alpha1\nkind: NodeJob\nmetadata: {name: forged}\nspec: {action: Cleanup, nodeName: lab-node, owner: {kind: Volume, name: v, uid: u}, device: {sparseFile: {volumeUID: 00000000-0000-0000-0000-000000000000}}, precondition: {nodeUID: x, specHash: y}, attempt: 1}\n";
    for (what, arguments, input) in [
        ("a job", &["create", "-f", "-", "--validate=false"] as &[&str], Some(job)),
        (
            "a PersistentVolume",
            &["create", "-f", "-", "--validate=false"],
            Some(
                "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: forged}\nspec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], hostPath: {path: /x}}\n",
            ),
        ),
        ("a volume's deletion", &["delete", "volume", "whatever"], None),
        ("a secret", &["get", "secrets", "-n", NAMESPACE], None),
    ] {
        let refused = with_token(&token, arguments, input).unwrap_err();
        assert!(refused.contains("orbidden"), "{what}: {refused}");
    }
    let lease = "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: quarry-agent-other-node, namespace: quarry-system}\nspec: {holderIdentity: x}\n";
    let refused =
        with_token(&token, &["create", "-f", "-", "--validate=false"], Some(lease)).unwrap_err();
    assert!(refused.contains("only the objects of its own node"), "{refused}");

    // The agent must not write the spec, which contains its device claims.
    let refused = with_token(
        &token,
        &["patch", "nodeinventory", NODE, "--type=merge", "-p", "{\"spec\":{\"deviceClaims\":[]}}"],
        None,
    )
    .unwrap_err();
    assert!(refused.contains("orbidden"), "{refused}");

    let unbound = kubectl(&["-n", NAMESPACE, "create", "token", "quarry-agent"]).trim().to_owned();
    let refused = patch(&unbound, NODE).unwrap_err();
    assert!(refused.contains("names no node"), "{refused}");
    kubectl(&["delete", "node", "other-node"]);
    until("its NodeInventory is deleted too", Duration::from_secs(30), || {
        match get(&["nodeinventory", "other-node"]) {
            None => Ok(()),
            Some(left) => Err(left.to_string()),
        }
    });
}
