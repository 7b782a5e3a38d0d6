use std::time::Duration;
use taffrail::{Log, Record, TopicConfig};

fn main() -> taffrail::Result<()> {
    let log = Log::open("./data")?;
    log.ensure_topic("orders", TopicConfig::new().partitions(4))?;

    let producer = log.producer().open()?;
    let stored = producer.send("orders", Record::new("placed").key("customer-7"))?.wait()?;
    println!("stored in partition {} at offset {}", stored.partition, stored.offset);

    let mut consumer = log.consumer("billing").subscribe(["orders"]).open()?;
    for record in &consumer.poll(Duration::from_secs(1))? {
        println!("{} {:?}", record.offset(), record.value_str());
    }
    consumer.commit()?;
    log.close()
}
