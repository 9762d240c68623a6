// k8s_command.hpp — `ddpxx k8s [KEY=VALUE ...] -- PROGRAM [ARGUMENTS]` prints a TrainJob of Kubeflow Trainer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <regex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <yaml-cpp/emitter.h>
#include <yaml-cpp/emittermanip.h>

#include <ddpxx/config/number_text.hpp>
#include <ddpxx/config/parse_config.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/utf8.hpp>

#include "argument_numbers.hpp"
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
  double grace = 0;

  static constexpr auto describe() {
    using namespace ddpxx;
    return fields(
        field<&K8sArguments::name>("Name of the job: small letters, digits and dashes, at most 45"),
        field<&K8sArguments::k8s_namespace>("Namespace of the job; empty: kubectl's own"),
        field<&K8sArguments::image>("Image with the program; empty: the runtime's"),
        field<&K8sArguments::runtime>("Name of the ClusterTrainingRuntime"),
        field<&K8sArguments::nodes>("Number of nodes", at_least(1)),
        field<&K8sArguments::ranks_per_node>("Number of ranks on each node", at_least(1), Unit::ranks),
        field<&K8sArguments::gpus_per_node>("GPUs of each node, as nvidia.com/gpu; 0 asks for none", at_least(0)),
        field<&K8sArguments::cpus_per_node>("Cores of each node, such as 8 or 500m; empty asks for none"),
        field<&K8sArguments::memory_per_node>("Memory of each node, such as 64Gi; empty asks for none"),
        field<&K8sArguments::launcher>("Path of ddpxx-run in the image; it reads the PET_ variables of the runtime"),
        field<&K8sArguments::token_secret>("Secret whose key `token` becomes DDPXX_TOKEN; empty: no token"),
        field<&K8sArguments::grace>("Time that a rank has to save after SIGTERM; 0 is ddpxx-run's own, 30 s. The pod's "
                                    "terminationGracePeriodSeconds must be as long",
                                    between(0.0, 1e6), Unit::seconds));
  }
};

/// A kind of name that Kubernetes has rules for.
struct NameRule {
  std::size_t max_length;
  bool may_begin_with_digit;
  bool may_have_dots;  ///< Between parts that are names without dots.
};
/// JobSet appends to the name of a job, and a pod's name has at most 63 characters.
inline constexpr NameRule kJobName{.max_length = 45, .may_begin_with_digit = false, .may_have_dots = false};
/// RFC 1123 labels.
inline constexpr NameRule kNamespace{.max_length = 63, .may_begin_with_digit = true, .may_have_dots = false};
/// RFC 1123 subdomains.
inline constexpr NameRule kSecret{.max_length = 253, .may_begin_with_digit = true, .may_have_dots = true};

/// Errors  `config` for a name that Kubernetes does not allow.
inline void check_name(const std::string& key, const std::string& name, const NameRule& rule) {
  const auto is_letter = [](char c) { return c >= 'a' && c <= 'z'; };
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto is_label = [&](std::string_view label) {
    return !label.empty() && (is_letter(label.front()) || (rule.may_begin_with_digit && is_digit(label.front()))) &&
           label.back() != '-' &&
           std::ranges::all_of(label, [&](char c) { return is_letter(c) || is_digit(c) || c == '-'; });
  };
  bool is_name = name.size() <= rule.max_length;
  for (std::string_view rest = name; is_name;) {
    const auto end = rule.may_have_dots ? rest.find('.') : std::string_view::npos;
    is_name = is_label(rest.substr(0, end));
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  if (!is_name)
    throw ddpxx::Error{ddpxx::Errc::config,
                       key + "=\"" + name + "\" is not a valid name in Kubernetes: small letters, digits and dashes" +
                           (rule.may_have_dots ? ", with dots between parts" : "") +
                           (rule.may_begin_with_digit ? "" : ", a letter first") + ", no dash at the ends, at most " +
                           std::to_string(rule.max_length)};
}

/// Errors  `config` for an amount that Kubernetes does not read.
/// Source  Kubernetes, API reference, Quantity.
inline void check_quantity(const std::string& key, const std::string& amount) {
  static const std::regex kForm{R"((\d+\.?\d*|\.\d+)([num]|k|[MGTPE]|[KMGTPE]i|[eE][+-]?\d+)?)"};
  if (!amount.empty() && !std::regex_match(amount, kForm))
    throw ddpxx::Error{ddpxx::Errc::config, key + "=" + amount +
                                                " is not an amount in Kubernetes: write a number, with a unit such as "
                                                "m, k, M, G, Ki, Mi or Gi behind it: 500m, 64Gi"};
}

/// A word of a command as Kubernetes has to read it: Kubernetes replaces $(NAME) by a variable, and $$ by $.
inline std::string container_word(const std::string& word) {
  std::string text;
  for (const char c : word) text += c == '$' ? "$$" : std::string{c};
  return text;
}

/// Errors  `config` for values that a manifest cannot hold, and for an empty launcher.
/// Source  Kubeflow Trainer, API trainer.kubeflow.org/v1alpha1, TrainJob.
inline std::string train_job(const K8sArguments& job, const std::vector<std::string>& program) {
  using namespace YAML;
  check_name("name", job.name, kJobName);
  if (!job.k8s_namespace.empty()) check_name("k8s_namespace", job.k8s_namespace, kNamespace);
  if (!job.token_secret.empty()) check_name("token_secret", job.token_secret, kSecret);
  check_quantity("cpus_per_node", job.cpus_per_node);
  check_quantity("memory_per_node", job.memory_per_node);
  if (job.launcher.empty())
    throw ddpxx::Error{ddpxx::Errc::config, "launcher is empty: give the path of ddpxx-run in the image"};
  for (std::size_t i = 0; i < program.size(); ++i)
    if (ddpxx::find_malformed_utf8(program[i]) != std::string_view::npos)
      throw ddpxx::Error{ddpxx::Errc::config, "word " + std::to_string(i + 1) +
                                                  " behind -- is not UTF-8, and a manifest holds no other text"};
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
  out << Key << "command" << Value << BeginSeq << DoubleQuoted << container_word(job.launcher) << EndSeq;
  out << Key << "args" << Value << BeginSeq;
  for (const auto& word : program) out << DoubleQuoted << container_word(word);
  out << EndSeq;
  if (!job.token_secret.empty() || job.grace > 0) {
    out << Key << "env" << Value << BeginSeq;
    if (!job.token_secret.empty()) {
      out << BeginMap;
      text("name", "DDPXX_TOKEN");
      open("valueFrom");
      open("secretKeyRef");
      text("name", job.token_secret);
      text("key", "token");
      close();
      close();
      out << EndMap;
    }
    if (job.grace > 0) {
      out << BeginMap;
      text("name", "PET_GRACE");
      text("value", ddpxx::real_text(job.grace));
      out << EndMap;
    }
    out << EndSeq;
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
  const auto job = ddpxx::parse_config<K8sArguments>(words.num_settings(), words.settings.data(),
                                                     {.program = "ddpxx k8s",
                                                      .more_usage = "-- PROGRAM [ARGUMENTS]",
                                                      .argument_numbers = argument_numbers(2, words.num_settings())});
  words.check("ddpxx k8s");
  const auto manifest = train_job(job, words.program);
  std::cout << "# Written by `ddpxx k8s`; kubectl create -f FILE starts it.\n" << manifest << '\n';
}
