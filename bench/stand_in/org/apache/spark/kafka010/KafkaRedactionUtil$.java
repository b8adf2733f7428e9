package org.apache.spark.kafka010;

import scala.collection.immutable.Seq;

/** Stands in for a Scala object of spark-token-provider-kafka: nothing here is secret. */
public class KafkaRedactionUtil$ {
  public static final KafkaRedactionUtil$ MODULE$ = new KafkaRedactionUtil$();

  public Seq<?> redactParams(Seq<?> settings) {
    return settings;
  }
}
