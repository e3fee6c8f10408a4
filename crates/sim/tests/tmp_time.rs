use std::time::Instant;
#[test]
fn t() {
    let b = Instant::now();
    for _ in 0..10 { let _ = quarry_api::crds::crds(); }
    println!("crds {:?}", b.elapsed()/10);
    let c = quarry_api::crds::crds();
    let b = Instant::now();
    for _ in 0..10 { let _ = quarry_apiserver::Server::in_memory(quarry_apiserver::Options::new(c.clone())); }
    println!("server {:?}", b.elapsed()/10);
    let s = quarry_sim::story::find("ext4").unwrap();
    for _ in 0..3 { let b = Instant::now(); let r = quarry_sim::run::run(&s, &quarry_sim::run::Mode::Ordered(vec![])); println!("run {:?} {}", b.elapsed(), r.is_ok()); }
}
