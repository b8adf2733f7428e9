package org.apache.spark.kafka010;

import java.util.HashMap;
import java.util.Map;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** Stands in for the class of spark-token-provider-kafka, which Maven does not resolve: no tokens, no security. */
public class KafkaConfigUpdater {
  private final Map<String, Object> settings;

  public KafkaConfigUpdater(String module, scala.collection.immutable.Map<String, Object> given) {
    settings = new HashMap<>(CollectionConverters.asJava(given));
  }

  public KafkaConfigUpdater set(String key, Object value) {
    settings.put(key, value);
    return this;
  }

  public KafkaConfigUpdater setIfUnset(String key, Object value) {
    settings.putIfAbsent(key, value);
    return this;
  }

  public KafkaConfigUpdater setAuthenticationConfigIfNeeded() {
    return this;
  }

  public KafkaConfigUpdater setAuthenticationConfigIfNeeded(Option<?> cluster) {
    return this;
  }

  public Map<String, Object> build() {
    return settings;
  }
}
