//! Topics: create, delete, and their settings.

use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_protocol::messages::{
    CreateTopicsRequest, DeleteTopicsRequest, DescribeConfigsRequest, IncrementalAlterConfigsRequest,
};
use kafka_protocol::protocol::StrBytes;

use super::{Client, ClientError, accepted, topic_name};

/// Type of a topic where requests about settings name a resource.
const TOPIC: i8 = 2;

/// Last version of DeleteTopics with plain names.
const DELETE_BY_NAME: i16 = 5;

const TIMEOUT_MS: i32 = 30_000;

/// A setting as the broker shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicSetting {
    /// Kafka's name.
    pub name: String,
    /// The value, `None` when it is not shown.
    pub value: Option<String>,
    /// Whether the topic itself sets it.
    pub own: bool,
}

fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_string())
}

impl Client {
    fn controller(&self) -> i32 {
        let cluster = self.cluster();
        let first = cluster.nodes.keys().next().copied().unwrap_or(-1);
        if cluster.nodes.contains_key(&cluster.controller) { cluster.controller } else { first }
    }

    /// Creates a topic; -1 leaves partitions or replication to the broker.
    pub fn create_topic(
        &mut self,
        name: &str,
        partitions: i32,
        replication: i16,
        settings: &[(String, String)],
    ) -> Result<(), ClientError> {
        let configs = settings
            .iter()
            .map(|(name, value)| CreatableTopicConfig::default().with_name(text(name)).with_value(Some(text(value))))
            .collect();
        let topic = CreatableTopic::default()
            .with_name(topic_name(name))
            .with_num_partitions(partitions)
            .with_replication_factor(replication)
            .with_configs(configs);
        let request = CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(TIMEOUT_MS);
        let answer = self.call(self.controller(), &request, i16::MAX)?;
        for result in &answer.topics {
            accepted(result.error_code, result.error_message.as_ref(), || format!("create topic {name}"))?;
        }
        Ok(())
    }

    /// Deletes a topic.
    pub fn delete_topic(&mut self, name: &str) -> Result<(), ClientError> {
        let request =
            DeleteTopicsRequest::default().with_topic_names(vec![topic_name(name)]).with_timeout_ms(TIMEOUT_MS);
        let answer = self.call(self.controller(), &request, DELETE_BY_NAME)?;
        for result in &answer.responses {
            accepted(result.error_code, result.error_message.as_ref(), || format!("delete topic {name}"))?;
        }
        Ok(())
    }

    /// The settings of a topic, by name.
    pub fn topic_settings(&mut self, name: &str) -> Result<Vec<TopicSetting>, ClientError> {
        const SOURCE_TOPIC: i8 = 1;
        let resource = DescribeConfigsResource::default()
            .with_resource_type(TOPIC)
            .with_resource_name(text(name))
            .with_configuration_keys(None);
        let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
        let answer = self.call(self.controller(), &request, i16::MAX)?;
        let mut all = Vec::new();
        for result in answer.results {
            accepted(result.error_code, result.error_message.as_ref(), || format!("settings of topic {name}"))?;
            all.extend(result.configs.into_iter().map(|config| TopicSetting {
                name: config.name.to_string(),
                value: config.value.map(|value| value.to_string()),
                own: config.config_source == SOURCE_TOPIC,
            }));
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// Sets and unsets settings of a topic, all or none.
    pub fn alter_topic(&mut self, name: &str, set: &[(String, String)], unset: &[String]) -> Result<(), ClientError> {
        const SET: i8 = 0;
        const DELETE: i8 = 1;
        let change = |name: &str, operation, value: Option<&String>| {
            AlterableConfig::default()
                .with_name(text(name))
                .with_config_operation(operation)
                .with_value(value.map(|value| text(value)))
        };
        let mut configs: Vec<_> = set.iter().map(|(name, value)| change(name, SET, Some(value))).collect();
        configs.extend(unset.iter().map(|name| change(name, DELETE, None)));
        let resource = AlterConfigsResource::default()
            .with_resource_type(TOPIC)
            .with_resource_name(text(name))
            .with_configs(configs);
        let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
        let answer = self.call(self.controller(), &request, i16::MAX)?;
        for result in &answer.responses {
            accepted(result.error_code, result.error_message.as_ref(), || format!("change topic {name}"))?;
        }
        Ok(())
    }
}
