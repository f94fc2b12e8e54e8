#include "mutator.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>

#include "input.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace torchbeast {

namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using Random = std::minstd_rand;

// Bytes that one mutation may add to a string.
constexpr size_t kMaxGrowth = 32;

std::string MutateBytes(std::string bytes) {
  const size_t size = bytes.size();
  bytes.resize(size + kMaxGrowth);
  bytes.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(bytes.data()), size, size + kMaxGrowth));
  return bytes;
}

// The limits of the protocol and their neighbours, and random numbers.
int64_t Number(Random& random) {
  static constexpr int64_t kNumbers[] = {0,  1,  2,    3,    4,         6,         7,        8,
                                         63, 64, 65,   1024, 1025,      1 << 28,   1 << 30,  -1,
                                         10, 11, 1000, 4096, INT32_MAX, INT64_MAX, INT64_MIN};
  if (random() % 4 == 0) return static_cast<int64_t>(random()) << random() % 33;
  return kNumbers[random() % std::size(kNumbers)];
}

// Sets a field, or adds to one that is repeated.
void SetScalar(Message* message, const FieldDescriptor* field, const std::string& old,
               Random& random) {
  const Reflection* reflection = message->GetReflection();
  const int64_t number = Number(random);
  auto set = [&](auto single, auto repeated, auto value) {
    (reflection->*(field->is_repeated() ? repeated : single))(message, field, value);
  };
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return set(&Reflection::SetInt32, &Reflection::AddInt32, static_cast<int32_t>(number));
    case FieldDescriptor::CPPTYPE_INT64:
      return set(&Reflection::SetInt64, &Reflection::AddInt64, number);
    case FieldDescriptor::CPPTYPE_UINT32:
      return set(&Reflection::SetUInt32, &Reflection::AddUInt32, static_cast<uint32_t>(number));
    case FieldDescriptor::CPPTYPE_UINT64:
      return set(&Reflection::SetUInt64, &Reflection::AddUInt64, static_cast<uint64_t>(number));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return set(&Reflection::SetFloat, &Reflection::AddFloat, static_cast<float>(number));
    case FieldDescriptor::CPPTYPE_BOOL:
      return set(&Reflection::SetBool, &Reflection::AddBool, number % 2 != 0);
    case FieldDescriptor::CPPTYPE_ENUM:
      return set(&Reflection::SetEnumValue, &Reflection::AddEnumValue,
                 static_cast<int>(random() % 12));
    case FieldDescriptor::CPPTYPE_STRING:
      return set(&Reflection::SetString, &Reflection::AddString, MutateBytes(old));
    default:
      return;
  }
}

void MutateMessage(Message* message, Random& random);

void MutateRepeated(Message* message, const FieldDescriptor* field, Random& random) {
  const Reflection* reflection = message->GetReflection();
  const int size = reflection->FieldSize(*message, field);
  const uint32_t choice = random() % 8;
  if (choice == 0 && size > 0) return reflection->RemoveLast(message, field);
  if (choice == 1 && size > 1) {
    return reflection->SwapElements(message, field, static_cast<int>(random() % size),
                                    static_cast<int>(random() % size));
  }
  const bool is_message = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
  if (is_message && size > 0 && choice > 2) {
    return MutateMessage(
        reflection->MutableRepeatedMessage(message, field, static_cast<int>(random() % size)),
        random);
  }
  if (is_message) {
    Message* added = reflection->AddMessage(message, field);
    if (size > 0) added->CopyFrom(reflection->GetRepeatedMessage(*message, field, 0));
    return;
  }
  const bool is_string = field->cpp_type() == FieldDescriptor::CPPTYPE_STRING;
  SetScalar(message, field,
            is_string && size > 0 ? reflection->GetRepeatedString(*message, field, size - 1) : "",
            random);
  if (size > 0 && choice > 2) {  // Another value instead of one more.
    reflection->SwapElements(message, field, static_cast<int>(random() % size), size);
    reflection->RemoveLast(message, field);
  }
}

// Changes one field of `message` or of a message in it.
void MutateMessage(Message* message, Random& random) {
  const Reflection* reflection = message->GetReflection();
  const auto* descriptor = message->GetDescriptor();
  const FieldDescriptor* field =
      descriptor->field(static_cast<int>(random() % descriptor->field_count()));
  if (field->is_repeated()) return MutateRepeated(message, field, random);
  if (random() % 16 == 0) return reflection->ClearField(message, field);
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    return MutateMessage(reflection->MutableMessage(message, field), random);
  }
  const bool is_string = field->cpp_type() == FieldDescriptor::CPPTYPE_STRING;
  SetScalar(message, field, is_string ? reflection->GetString(*message, field) : "", random);
}

void MutateMessages(const Message& prototype, std::vector<std::string>* messages, Random& random) {
  const size_t index = random() % messages->size();
  std::string& bytes = (*messages)[index];
  switch (random() % 8) {
    case 0:
      messages->push_back(bytes);
      return;
    case 1:
      messages->erase(messages->begin() + static_cast<std::ptrdiff_t>(index));
      return;
    case 2:
      bytes = MutateBytes(bytes);
      return;
    default:
      const std::unique_ptr<Message> message(prototype.New());
      if (!message->ParsePartialFromString(bytes)) {
        bytes = MutateBytes(bytes);
        return;
      }
      for (uint32_t n = 1 + random() % 3; n > 0; --n) MutateMessage(message.get(), random);
      bytes = message->SerializePartialAsString();
  }
}

}  // namespace

size_t MutateInput(const Message& prototype, uint8_t* data, size_t size, size_t max_size,
                   unsigned int seed) {
  Random random(seed);
  if (random() % 8 == 0) return LLVMFuzzerMutate(data, size, max_size);
  FuzzInput input = Split(data, size);
  if (input.messages.empty()) input.messages.emplace_back();
  if (random() % 16 == 0) input.options = static_cast<uint8_t>(random());
  MutateMessages(prototype, &input.messages, random);
  const std::string bytes = Join(input);
  const size_t length = std::min(bytes.size(), max_size);
  std::memcpy(data, bytes.data(), length);
  return length;
}

}  // namespace torchbeast
