//! Parity of the embedded API with the real API server. Against the embedded one alone it always runs; with
//! QUARRY_PARITY_KUBECONFIG naming an administrator's kubeconfig it compares both.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use quarry_tests::parity;

#[tokio::test]
async fn the_embedded_api_answers_every_conversation_as_expected() {
    let report = parity::run_embedded(parity::embedded().client("default")).await;
    println!("{report}");
    assert!(report.is_clean(), "{report}");
    assert!(report.conversations >= 40, "{report}");
    assert!(report.rejections * 3 >= report.conversations, "at least a third are rejections: {report}");
}

#[tokio::test]
async fn the_embedded_api_answers_as_the_real_one() {
    let Ok(path) = std::env::var("QUARRY_PARITY_KUBECONFIG") else {
        println!("skipped: QUARRY_PARITY_KUBECONFIG is not set; the cluster tier runs this comparison");
        return;
    };
    let config = kube::config::Kubeconfig::read_from(path).unwrap();
    let config = kube::Config::from_custom_kubeconfig(config, &Default::default()).await.unwrap();
    let report = parity::run_all(parity::embedded().client("default"), config.try_into().unwrap()).await;
    println!("{report}");
    assert!(report.is_clean(), "{report}");
}
