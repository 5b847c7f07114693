//! scratch
use cofferdam_sim::jobs;
use cofferdam_sim::run::*;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let job = jobs::find(&a[1]).unwrap();
    let mut mode = Mode::of(a[2].parse().unwrap(), jobs::Parameters::of(job));
    mode.sink = a[3].parse().unwrap();
    let seed = a[4].parse().unwrap();
    let mut run = Run::new(&job, &mode, seed, None, false).unwrap();
    let r = run.finish();
    println!("{}", run.world().plan().options);
    println!("{:?}", run.world().plan().faults);
    if a.len() > 5 {
        for t in run.world().trace().iter() {
            println!("{}", cofferdam_sim::story::line(t, run.case().job.graph()));
        }
    }
    for f in r.judgement.violations().take(8) {
        println!("{:?}", f);
    }
    println!("{:?} {:?} {}", r.judgement.state, r.judgement.output, r.events);
}
