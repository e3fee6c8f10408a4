//! The embedded API answers every conversation of `tests/parity/` as expected; `parity_real.rs` compares it with
//! the real API server.

use quarry_tests::parity;

#[tokio::test]
async fn the_embedded_api_answers_every_conversation_as_expected() {
    let report = parity::run_embedded(parity::embedded().client("default")).await;
    println!("{report}");
    assert!(report.is_clean(), "{report}");
    assert!(report.conversations >= 40, "{report}");
    assert!(
        report.rejections * 3 >= report.conversations,
        "at least a third are rejections: {report}"
    );
}
