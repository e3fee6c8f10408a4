//! Parity: every conversation with the embedded API and with the real API server of the cluster
//! tier, compared.
//!
//! Run by `scripts/test-tiers` inside the lab, before Quarry is installed: no operator may
//! interfere.

use quarry_tests::{lab, parity};

#[tokio::test]
async fn embedded_api_responds_like_kube_apiserver() {
    let crds = lab::repository().join("deploy/crds.yaml");
    lab::kubectl(&["apply", "-f", &crds.to_string_lossy()]);
    lab::kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=30s"]);
    let real = kube::Client::try_default().await.expect("KUBECONFIG is set by the tier's runner");
    let report = parity::run_all(parity::embedded().client("default"), real).await;
    println!("figure: parity with the real API server: {report}");
    assert!(report.is_clean(), "{report}");
    assert!(report.conversations >= 40, "{report}");
    assert!(
        report.rejections * 3 >= report.conversations,
        "at least a third are rejections: {report}"
    );
}
