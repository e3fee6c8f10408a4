//! Every story without faults, in the fixed order: the ground of everything else here.

use quarry_sim::{
    run::{Mode, run},
    story::stories,
};

#[test]
fn every_story_ends_without_faults() {
    for story in stories() {
        let begun = std::time::Instant::now();
        match run(&story, &Mode::Ordered(Vec::new())) {
            Ok(ended) => println!(
                "sim: story {}: {} points, {} steps, {:?}",
                story.name,
                ended.points.len(),
                ended.steps,
                begun.elapsed()
            ),
            Err(failed) => {
                panic!("story {}: {}\n{}", story.name, failed.why, failed.trace.join("\n"))
            }
        }
    }
}
