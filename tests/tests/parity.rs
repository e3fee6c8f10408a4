//! The embedded API gives the expected response in every conversation in `tests/parity/`;
//! `parity_real.rs` compares it with the real API server.

use quarry_tests::parity;

#[tokio::test]
async fn embedded_api_gives_the_expected_responses() {
    let report = parity::run_embedded(parity::embedded().client("default")).await;
    println!("{report}");
    assert!(report.is_clean(), "{report}");
    assert!(report.conversations >= 40, "{report}");
    assert!(
        report.rejections * 3 >= report.conversations,
        "at least a third are rejections: {report}"
    );
}
