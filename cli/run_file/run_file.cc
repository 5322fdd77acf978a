#include "cli/run_file/run_file.h"

#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "base/layout/external_model.h"
#include "base/layout/ids.h"
#include "base/time/proto_time.h"
#include "cli/output/error.h"
#include "cli/run_file/nearest.h"
#include "cli/run_file/rules.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/message.h"
#include "toml++/toml.h"

namespace atl::cli {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr int kMaxFaults = 20;
constexpr int64_t kLayersMax = 1 << 16;
constexpr char kCheckpointEvery[] = "checkpoint.every_round_count";

// The lines of an error message, in the order of detection.
class Faults {
 public:
  void Add(const std::string& file, int line, absl::string_view text) {
    lines_.push_back(absl::StrCat(file, ":", line, ": ", text));
  }
  void Add(const std::string& file, absl::string_view text) {
    lines_.push_back(absl::StrCat(file, ": ", text));
  }
  bool empty() const { return lines_.empty(); }
  absl::Status ToStatus() const {
    if (lines_.empty()) return absl::OkStatus();
    std::vector<std::string> told = lines_;
    if (told.size() > kMaxFaults) {
      told.resize(kMaxFaults);
      told.push_back(
          absl::StrCat("... and ", lines_.size() - kMaxFaults, " more"));
    }
    return WithHint(
        WithReason(absl::InvalidArgumentError(absl::StrJoin(told, "\n")),
                   "RUN_FILE_INVALID"),
        "The keys are the fields of RunSpec in proto/atoll/v1/run.proto; "
        "deploy/config has examples.");
  }

 private:
  std::vector<std::string> lines_;
};

// The source of a key that a file must not give; empty: the file may give it.
absl::string_view DerivedFrom(const FieldDescriptor& field) {
  if (field.containing_type() == v1::Layout::descriptor()) {
    return field.name() == "tensors" ? "[model]" : "";
  }
  if (field.containing_type() == v1::InitSpec::descriptor()) {
    return field.name() == "seed" ? "" : "init.model, a model's directory";
  }
  return "";
}

bool IsDuration(const FieldDescriptor& field) {
  return field.type() == FieldDescriptor::TYPE_MESSAGE &&
         field.message_type() == google::protobuf::Duration::descriptor();
}

// "INNER_OPTIMIZER_KIND_ADAMW" -> "adamw". The prefix comes from value 0.
std::string EnumValueName(const EnumValueDescriptor& value) {
  absl::string_view prefix = value.type()->value(0)->name();
  prefix = absl::StripSuffix(prefix, "UNSPECIFIED");
  return absl::AsciiStrToLower(absl::StripPrefix(value.name(), prefix));
}

// Reads the values of one file into a message by reflection.
class Reader {
 public:
  // Adds the paths of the keys that it reads to `given`. Skips `other_keys`.
  Reader(std::string file, std::vector<std::string> other_keys,
         std::set<std::string>* given, Faults* faults)
      : file_(std::move(file)),
        other_keys_(std::move(other_keys)),
        given_(*given),
        faults_(*faults) {}

  // `path` is "" at the top, "inner." inside [inner].
  void ReadTable(const toml::table& table, const std::string& path,
                 Message* message) {
    const Descriptor& type = *message->GetDescriptor();
    for (auto&& [key, node] : table) {
      const std::string name(key.str());
      const int line = static_cast<int>(key.source().begin.line);
      if (Contains(other_keys_, path + name)) continue;
      const FieldDescriptor* field = type.FindFieldByName(name);
      if (field == nullptr) {
        UnknownKey(type, path, name, line);
      } else if (!DerivedFrom(*field).empty()) {
        Fault(line, absl::StrCat("'", path, name, "' follows from ",
                                 DerivedFrom(*field), "; leave it out"));
      } else {
        given_.insert(path + name);
        ReadValue(node, *field, path + name, line, message);
      }
    }
  }

 private:
  static bool Contains(const std::vector<std::string>& names,
                       const std::string& name) {
    for (const std::string& known : names) {
      if (known == name) return true;
    }
    return false;
  }

  void Fault(int line, absl::string_view text) {
    faults_.Add(file_, line, text);
  }

  void UnknownKey(const Descriptor& type, const std::string& path,
                  const std::string& name, int line) {
    std::vector<std::string> names;
    for (int i = 0; i < type.field_count(); ++i) {
      if (DerivedFrom(*type.field(i)).empty()) {
        names.push_back(type.field(i)->name());
      }
    }
    for (absl::string_view other : other_keys_) {
      if (absl::ConsumePrefix(&other, path) && !absl::StrContains(other, '.')) {
        names.emplace_back(other);
      }
    }
    std::string text = absl::StrCat("unknown key '", path, name, "'");
    std::string nearest = NearestName(name, names);
    if (!nearest.empty()) {
      absl::StrAppend(&text, "; did you mean '", path, nearest, "'?");
    } else {
      absl::StrAppend(&text, "; known keys are ", absl::StrJoin(names, ", "));
    }
    Fault(line, text);
  }

  void ReadValue(const toml::node& node, const FieldDescriptor& field,
                 const std::string& path, int line, Message* message) {
    if (IsDuration(field)) {
      ReadDuration(node, field, path, line, message);
      return;
    }
    if (field.is_repeated()) {
      ReadList(node, field, path, line, message);
      return;
    }
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE:
        if (const toml::table* table = node.as_table()) {
          ReadTable(*table, path + ".",
                    message->GetReflection()->MutableMessage(message, &field));
        } else {
          Fault(line, absl::StrCat("'", path, "' is a table: write [", path,
                                   "] and its keys below"));
        }
        return;
      case FieldDescriptor::CPPTYPE_ENUM:
        ReadEnum(node, field, path, line, message);
        return;
      case FieldDescriptor::CPPTYPE_STRING:
        if (const auto* text = node.as_string()) {
          message->GetReflection()->SetString(message, &field, text->get());
        } else {
          Fault(line, absl::StrCat("'", path, "' must be a string"));
        }
        return;
      case FieldDescriptor::CPPTYPE_BOOL:
        if (const auto* value = node.as_boolean()) {
          message->GetReflection()->SetBool(message, &field, value->get());
        } else {
          Fault(line, absl::StrCat("'", path, "' must be true or false"));
        }
        return;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        ReadDouble(node, field, path, line, message);
        return;
      default:
        ReadInteger(node, field, path, line, message);
    }
  }

  void ReadDuration(const toml::node& node, const FieldDescriptor& field,
                    const std::string& path, int line, Message* message) {
    const auto* text = node.as_string();
    absl::Duration value;
    if (text == nullptr || !absl::ParseDuration(text->get(), &value) ||
        value == absl::InfiniteDuration() || value < absl::ZeroDuration()) {
      Fault(line, absl::StrCat("'", path,
                               "' must be a duration, at least 0: \"30s\", "
                               "\"500ms\" or \"1m30s\""));
      return;
    }
    message->GetReflection()
        ->MutableMessage(message, &field)
        ->CopyFrom(ToProto(value));
  }

  // Lists hold enum names. A list replaces the preset's whole list.
  void ReadList(const toml::node& node, const FieldDescriptor& field,
                const std::string& path, int line, Message* message) {
    const toml::array* list = node.as_array();
    if (field.cpp_type() != FieldDescriptor::CPPTYPE_ENUM) {
      Fault(line, absl::StrCat("'", path, "' cannot be given in a file"));
    } else if (list == nullptr) {
      Fault(line, absl::StrCat("'", path, "' must be a list: [\"...\"]"));
    } else {
      message->GetReflection()->ClearField(message, &field);
      for (const toml::node& item : *list) {
        ReadEnum(item, field, path, line, message);
      }
    }
  }

  void ReadEnum(const toml::node& node, const FieldDescriptor& field,
                const std::string& path, int line, Message* message) {
    const EnumDescriptor& type = *field.enum_type();
    const google::protobuf::Reflection& reflection = *message->GetReflection();
    std::vector<std::string> names;
    const auto* text = node.as_string();
    for (int i = 1; i < type.value_count(); ++i) {
      names.push_back(EnumValueName(*type.value(i)));
      if (text == nullptr || text->get() != names.back()) continue;
      if (field.is_repeated()) {
        reflection.AddEnum(message, &field, type.value(i));
      } else {
        reflection.SetEnum(message, &field, type.value(i));
      }
      return;
    }
    std::string fault = absl::StrCat("'", path, "' must be one of \"",
                                     absl::StrJoin(names, "\", \""), "\"");
    if (text != nullptr) {
      const std::string nearest = NearestName(text->get(), names);
      if (!nearest.empty()) {
        absl::StrAppend(&fault, "; did you mean \"", nearest, "\"?");
      }
    }
    Fault(line, fault);
  }

  void ReadDouble(const toml::node& node, const FieldDescriptor& field,
                  const std::string& path, int line, Message* message) {
    double value = 0;
    if (const auto* real = node.as_floating_point()) {
      value = real->get();
    } else if (const auto* integer = node.as_integer()) {
      value = static_cast<double>(integer->get());
    } else {
      Fault(line, absl::StrCat("'", path, "' must be a number"));
      return;
    }
    if (CheckRange(path, value, line)) {
      message->GetReflection()->SetDouble(message, &field, value);
    }
  }

  void ReadInteger(const toml::node& node, const FieldDescriptor& field,
                   const std::string& path, int line, Message* message) {
    const auto* integer = node.as_integer();
    if (integer == nullptr) {
      Fault(line, absl::StrCat("'", path, "' must be a whole number"));
      return;
    }
    const int64_t value = integer->get();
    if (!CheckRange(path, static_cast<double>(value), line)) return;
    const google::protobuf::Reflection& reflection = *message->GetReflection();
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        if (value < std::numeric_limits<int32_t>::min() ||
            value > std::numeric_limits<int32_t>::max()) {
          Fault(line, absl::StrCat("'", path, "' does not fit 32 bits"));
        } else {
          reflection.SetInt32(message, &field, static_cast<int32_t>(value));
        }
        return;
      case FieldDescriptor::CPPTYPE_INT64:
        reflection.SetInt64(message, &field, value);
        return;
      case FieldDescriptor::CPPTYPE_UINT64:
        if (value < 0) {
          Fault(line, absl::StrCat("'", path, "' must not be negative"));
        } else {
          reflection.SetUInt64(message, &field, static_cast<uint64_t>(value));
        }
        return;
      default:
        Fault(line, absl::StrCat("'", path, "' cannot be given in a file"));
    }
  }

  bool CheckRange(const std::string& path, double value, int line) {
    const std::string fault = RangeFault(path, value);
    if (fault.empty()) return true;
    Fault(line, absl::StrCat("'", path, "' ", fault));
    return false;
  }

  const std::string file_;
  const std::vector<std::string> other_keys_;
  std::set<std::string>& given_;
  Faults& faults_;
};

std::optional<std::string> StringAt(const toml::table& table, const char* path,
                                    const std::string& file, Faults* faults) {
  const toml::node* node = table.at_path(path).node();
  if (node == nullptr) return std::nullopt;
  if (const auto* text = node->as_string()) return text->get();
  faults->Add(file, static_cast<int>(node->source().begin.line),
              absl::StrCat("'", path, "' must be a string"));
  return std::nullopt;
}

// Makes a path of the file absolute.
std::string PathFrom(const RunFileOptions& options, const std::string& path) {
  if (path.empty() || options.directory.empty() ||
      absl::StartsWith(path, "/")) {
    return path;
  }
  return absl::StrCat(options.directory, "/", path);
}

void ReadFragmentPattern(const toml::table& table, const std::string& name,
                         RunFile* run, Faults* faults) {
  const std::optional<std::string> pattern =
      StringAt(table, "layout.fragment_pattern", name, faults);
  if (!pattern.has_value()) return;
  run->fragment_pattern = *pattern;
  if (*pattern == "strided" || *pattern == "balanced") return;
  const toml::node* node = table.at_path("layout.fragment_pattern").node();
  faults->Add(name, static_cast<int>(node->source().begin.line),
              "'layout.fragment_pattern' must be one of \"strided\", "
              "\"balanced\"");
}

// [checkpoint] every_round_count is the other name of
// checkpoint_every_round_count.
void ReadCheckpointEvery(const toml::table& table, const std::string& name,
                         RunFile* run, Faults* faults) {
  const toml::node* node = table.at_path(kCheckpointEvery).node();
  if (node == nullptr) return;
  const auto fault = [&](absl::string_view text) {
    faults->Add(name, static_cast<int>(node->source().begin.line),
                absl::StrCat("'", kCheckpointEvery, "' ", text));
  };
  const auto* count = node->as_integer();
  if (count == nullptr) return fault("must be a whole number");
  const std::string range =
      RangeFault(kCheckpointEvery, static_cast<double>(count->get()));
  if (!range.empty()) return fault(range);
  if (table.contains("checkpoint_every_round_count")) {
    return fault("and 'checkpoint_every_round_count' are two names of one "
                 "value: leave the second one out");
  }
  run->spec.set_checkpoint_every_round_count(count->get());
}

// A file's own fragment_count replaces its preset's layers_a_fragment, and the
// other way round.
void ReadLayersAFragment(const toml::table& table, const std::string& name,
                         RunFile* run, std::set<std::string>* given,
                         Faults* faults) {
  const toml::node* node = table.at_path("layout.layers_a_fragment").node();
  const bool has_count = table.at_path("layout.fragment_count").node() != nullptr;
  if (node == nullptr) {
    if (has_count) run->layers_a_fragment = 0;
    return;
  }
  if (!has_count) given->erase("layout.fragment_count");
  const auto* count = node->as_integer();
  if (count == nullptr || count->get() < 1 || count->get() > kLayersMax) {
    faults->Add(name, static_cast<int>(node->source().begin.line),
                absl::StrCat("'layout.layers_a_fragment' must be a whole "
                             "number from 1 to ",
                             kLayersMax));
    return;
  }
  run->layers_a_fragment = count->get();
}

// The rest of a file of an external model. `own`: the file's keys.
void ReadExternal(const toml::table& table, const std::string& name,
                  const std::set<std::string>& own, RunFile* run,
                  Faults* faults) {
  const auto fault_at = [&](const std::string& key, absl::string_view text) {
    const toml::node* node = table.at_path(key).node();
    faults->Add(name, static_cast<int>(node->source().begin.line), text);
  };
  for (const std::string& key : own) {
    const std::string fault = ExternalKeyFault(key);
    if (!fault.empty()) fault_at(key, fault);
  }
  if (own.count("data.format") != 0 &&
      run->spec.data().format() != v1::DATA_FORMAT_EXTERNAL) {
    fault_at("data.format",
             "'data.format' must be \"external\": the trainer of an external "
             "model reads the data; leave it out");
  }
  const std::string fault = WeightUnitFault(own, run->spec.weight_unit());
  if (!fault.empty()) faults->Add(name, fault);
  MakeExternal(own, &run->spec);
  run->has_fingerprint = false;
}

// Reads one file into `run`; with `allow_preset` reads its preset first.
void ReadFile(absl::string_view text, const std::string& name,
              const RunFileOptions& options, bool allow_preset, RunFile* run,
              std::set<std::string>* given, Faults* faults) {
  toml::parse_result parsed = toml::parse(std::string(text), name);
  if (!parsed) {
    faults->Add(name, static_cast<int>(parsed.error().source().begin.line),
                std::string(parsed.error().description()));
    return;
  }
  const toml::table& table = parsed.table();
  std::vector<std::string> other_keys = {"layout.fragment_pattern",
                                         "layout.layers_a_fragment",
                                         kCheckpointEvery};
  if (allow_preset) {
    other_keys.insert(other_keys.end(),
                      {"run_id", "preset", "init.model", "model.tensors"});
    if (auto run_id = StringAt(table, "run_id", name, faults)) {
      run->run_id = *run_id;
    }
    if (auto preset = StringAt(table, "preset", name, faults)) {
      std::optional<std::string> preset_text =
          options.find_preset ? options.find_preset(*preset) : std::nullopt;
      if (preset_text.has_value()) {
        ReadFile(*preset_text, *preset + ".toml", options,
                 /*allow_preset=*/false, run, given, faults);
      } else {
        faults->Add(name,
                    static_cast<int>(table.get("preset")->source().begin.line),
                    absl::StrCat("there is no preset '", *preset,
                                 "'; presets are ", options.preset_names));
      }
    }
  }
  std::set<std::string> own;
  for (const std::string& key : other_keys) {
    if (table.at_path(key).node() != nullptr) own.insert(key);
  }
  Reader(name, other_keys, &own, faults).ReadTable(table, "", &run->spec);
  given->insert(own.begin(), own.end());
  DropOtherData(own, run->spec.mutable_data());
  DropOtherRounds(own, run->spec.mutable_schedule());
  if (const toml::table* data = table["data"].as_table()) {
    if (data->contains("url")) run->has_fingerprint = false;
    if (data->contains("fingerprint")) run->has_fingerprint = true;
    if (data->contains("path") && allow_preset) {
      run->spec.mutable_data()->set_path(
          PathFrom(options, run->spec.data().path()));
    }
  }
  ReadFragmentPattern(table, name, run, faults);
  ReadLayersAFragment(table, name, run, given, faults);
  ReadCheckpointEvery(table, name, run, faults);
  if (!allow_preset) return;
  // This file's length replaces its preset's.
  const bool has_rounds = table.at_path("schedule.round_count").node() != nullptr;
  const bool has_tokens = table.at_path("schedule.token_count").node() != nullptr;
  if (has_rounds && !has_tokens) {
    run->spec.mutable_schedule()->clear_token_count();
  } else if (has_tokens && !has_rounds) {
    run->spec.mutable_schedule()->clear_round_count();
  }
  if (auto model = StringAt(table, "init.model", name, faults)) {
    run->model_directory = PathFrom(options, *model);
  }
  if (auto tensors = StringAt(table, "model.tensors", name, faults)) {
    run->tensors_path = PathFrom(options, *tensors);
  }
  for (absl::string_view key : own) {
    if (key == "model.tensors" || !absl::ConsumePrefix(&key, "model.")) {
      continue;
    }
    run->model_keys.emplace(key);
  }
  if (IsExternal(run->spec.model())) {
    ReadExternal(table, name, own, run, faults);
  }
}

void CheckComplete(const std::string& name, const RunFile& run,
                   Faults* faults) {
  const auto required = [&](const char* key, int64_t value) {
    if (value == 0) faults->Add(name, absl::StrCat("'", key, "' is missing"));
  };
  const v1::ModelSpec& model = run.spec.model();
  const bool external = IsExternal(model);
  if (external != !run.tensors_path.empty()) {
    faults->Add(name, external
                          ? "'model.tensors' is missing: an external model "
                            "needs the list of its tensors; name the file "
                            "here, or with --tensors"
                          : "'model.tensors' (--tensors) is only for "
                            "model.architecture = \"external\"");
  }
  if (!external && run.spec.data().format() == v1::DATA_FORMAT_EXTERNAL) {
    faults->Add(name,
                "'data.format' \"external\" is only for model.architecture = "
                "\"external\": islands must read this model's data");
  }
  if (!external && run.model_directory.empty()) {
    required("model.vocab_size", model.vocab_size());
    required("model.hidden_size", model.hidden_size());
    required("model.intermediate_size", model.intermediate_size());
    required("model.layer_count", model.layer_count());
    required("model.head_count", model.head_count());
    required("model.sequence_length", model.sequence_length());
  }
  required("schedule.inner_step_count", run.spec.schedule().inner_step_count());
  if (run.spec.schedule().round_count() == 0 &&
      run.spec.schedule().token_count() == 0) {
    faults->Add(name,
                "'schedule.round_count' is missing (or give "
                "schedule.token_count: the run ends after that many merged "
                "tokens)");
  }
  const v1::DataSpec& data = run.spec.data();
  for (const std::string& fault : FindDataFaults(data)) {
    faults->Add(name, fault);
  }
  if (!external && data.path().empty() && data.url().empty() &&
      !run.has_fingerprint) {
    faults->Add(name,
                "'data.path' is missing (or give data.url, or "
                "data.fingerprint = \"\" if every island has its own data)");
  }
  absl::Status id = ValidateId("run_id", run.run_id);
  if (!id.ok()) {
    faults->Add(name, id.message());
  } else if (run.run_id[0] == '-') {
    faults->Add(name, absl::StrCat("run_id \"", run.run_id,
                                   "\" begins with '-', as a flag does"));
  }
}

}  // namespace

absl::StatusOr<RunFile> ParseRunFile(absl::string_view text,
                                     const RunFileOptions& options) {
  Faults faults;
  std::set<std::string> given;
  RunFile run;
  run.run_id = options.default_run_id;
  run.spec = DefaultRunSpec();
  ReadFile(text, options.name, options, /*allow_preset=*/true, &run, &given,
           &faults);
  if (!options.model_directory.empty()) {
    run.model_directory = options.model_directory;
  }
  if (!options.tensors_path.empty()) run.tensors_path = options.tensors_path;
  if (faults.empty()) {
    if ((run.layers_a_fragment > 0 || IsExternal(run.spec.model())) &&
        given.count("layout.fragment_count") == 0) {
      run.spec.mutable_layout()->clear_fragment_count();
    }
    FillInDefaults(given, &run.spec);
    CheckComplete(options.name, run, &faults);
  }
  if (!faults.empty()) return faults.ToStatus();
  return run;
}

}  // namespace atl::cli
