// k8s_command.hpp — `ddpxx k8s [KEY=VALUE ...] -- PROGRAM [ARGUMENTS]` prints a TrainJob of Kubeflow Trainer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <yaml-cpp/emitter.h>
#include <yaml-cpp/emittermanip.h>

#include <ddpxx/config/parse_config.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/error.hpp>

#include "job_words.hpp"

struct K8sArguments {
  std::string name = "ddpxx";
  std::string k8s_namespace = {};
  std::string image = {};
  std::string runtime = "torch-distributed";
  std::int64_t nodes = 1;
  std::int64_t ranks_per_node = 1;
  std::int64_t gpus_per_node = 0;
  std::string cpus_per_node = {};
  std::string memory_per_node = {};
  std::string launcher = "ddpxx-run";
  std::string token_secret = {};

  static constexpr auto describe() {
    using namespace ddpxx;
    return fields(
        field<&K8sArguments::name>("Name of the job: small letters, digits and dashes, at most 63"),
        field<&K8sArguments::k8s_namespace>("Namespace of the job; empty: kubectl's own"),
        field<&K8sArguments::image>("Image with the program; empty: the runtime's"),
        field<&K8sArguments::runtime>("Name of the ClusterTrainingRuntime"),
        field<&K8sArguments::nodes>("Number of nodes", at_least(1)),
        field<&K8sArguments::ranks_per_node>("Number of ranks on each node", at_least(1), Unit::ranks),
        field<&K8sArguments::gpus_per_node>("GPUs of each node, as nvidia.com/gpu; 0 asks for none", at_least(0)),
        field<&K8sArguments::cpus_per_node>("Cores of each node, such as 8 or 500m; empty asks for none"),
        field<&K8sArguments::memory_per_node>("Memory of each node, such as 64Gi; empty asks for none"),
        field<&K8sArguments::launcher>("Path of ddpxx-run in the image; it reads the PET_ variables of the runtime"),
        field<&K8sArguments::token_secret>("Secret whose key `token` becomes DDPXX_TOKEN; empty: no token"));
  }
};

/// Errors  `config` for a name that Kubernetes does not allow (RFC 1035).
inline void check_dns_label(const std::string& key, const std::string& name) {
  const auto allowed = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; };
  const bool is_label = !name.empty() && name.size() <= 63 && name.front() >= 'a' && name.front() <= 'z' &&
                        name.back() != '-' && std::ranges::all_of(name, allowed);
  if (!is_label)
    throw ddpxx::Error{ddpxx::Errc::config,
                       key + "=\"" + name +
                           "\" is no name of Kubernetes: small letters, digits and dashes, a letter "
                           "first, at most 63"};
}

/// Source  Kubeflow Trainer, API trainer.kubeflow.org/v1alpha1, TrainJob.
inline std::string train_job(const K8sArguments& job, const std::vector<std::string>& program) {
  using namespace YAML;
  check_dns_label("name", job.name);
  if (!job.k8s_namespace.empty()) check_dns_label("k8s_namespace", job.k8s_namespace);
  if (!job.token_secret.empty()) check_dns_label("token_secret", job.token_secret);
  Emitter out;
  const auto text = [&](const char* key, const std::string& value) {
    if (!value.empty()) out << Key << key << Value << DoubleQuoted << value;
  };
  const auto open = [&](const char* key) { out << Key << key << Value << BeginMap; };
  const auto close = [&] { out << EndMap; };
  out << BeginMap;
  out << Key << "apiVersion" << Value << "trainer.kubeflow.org/v1alpha1";
  out << Key << "kind" << Value << "TrainJob";
  open("metadata");
  text("name", job.name);
  text("namespace", job.k8s_namespace);
  close();
  open("spec");
  open("runtimeRef");
  text("apiGroup", "trainer.kubeflow.org");
  text("kind", "ClusterTrainingRuntime");
  text("name", job.runtime);
  close();
  open("trainer");
  text("image", job.image);
  out << Key << "numNodes" << Value << job.nodes;
  out << Key << "numProcPerNode" << Value << job.ranks_per_node;
  out << Key << "command" << Value << BeginSeq << DoubleQuoted << job.launcher << EndSeq;
  out << Key << "args" << Value << BeginSeq;
  for (const auto& word : program) out << DoubleQuoted << word;
  out << EndSeq;
  if (!job.token_secret.empty()) {
    out << Key << "env" << Value << BeginSeq << BeginMap;
    text("name", "DDPXX_TOKEN");
    open("valueFrom");
    open("secretKeyRef");
    text("name", job.token_secret);
    text("key", "token");
    close();
    close();
    out << EndMap << EndSeq;
  }
  if (job.gpus_per_node > 0 || !job.cpus_per_node.empty() || !job.memory_per_node.empty()) {
    open("resourcesPerNode");
    for (const char* kind : {"requests", "limits"}) {
      open(kind);
      text("cpu", job.cpus_per_node);
      text("memory", job.memory_per_node);
      if (job.gpus_per_node > 0) text("nvidia.com/gpu", std::to_string(job.gpus_per_node));
      close();
    }
    close();
  }
  close();
  close();
  out << EndMap;
  return out.c_str();
}

inline void k8s_command(int argc, char** argv) {
  const auto words = read_job_words(argc, argv);
  const auto job =
      ddpxx::parse_config<K8sArguments>(words.num_settings(), words.settings.data(), {.program = "ddpxx k8s"});
  words.check("ddpxx k8s");
  const auto manifest = train_job(job, words.program);
  std::cout << "# Written by `ddpxx k8s`; kubectl create -f FILE starts it.\n" << manifest << '\n';
}
