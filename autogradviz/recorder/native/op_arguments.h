// The arguments of operators: a key that is equal for equal values, and their text.
//
// ``ArgumentsSeen`` (autogradviz/events) has the format of the text.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>

#include <cmath>
#include <cstdio>
#include <string>

namespace agv {

// Return the number of Python that a tensor stands for, none if it cannot be read.
inline c10::IValue number_of(const at::Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (!impl.is_wrapped_number() || impl.is_python_dispatch() || !impl.has_storage() || !impl.device().is_cpu() ||
      impl.numel() != 1 || impl.storage().data() == nullptr)
    return {};
  const void* data = impl.data();
  switch (c10::typeMetaToScalarType(impl.dtype())) {
    case c10::ScalarType::Double:
      return *static_cast<const double*>(data);
    case c10::ScalarType::Long:
      return *static_cast<const int64_t*>(data);
    case c10::ScalarType::Bool:
      return *static_cast<const bool*>(data);
    case c10::ScalarType::ComplexDouble:
      return *static_cast<const c10::complex<double>*>(data);
    default:
      return {};
  }
}

template <class Number>
void append_bytes(std::string& key, char tag, Number value) {
  key.push_back(tag);
  key.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

inline void append_key(std::string& key, const c10::IValue& value) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    bool is_number = tensor.defined() && tensor.unsafeGetTensorImpl()->is_wrapped_number();
    if (is_number)
      append_key(key, number_of(tensor));
    else
      key.push_back(tensor.defined() ? 'T' : 'N');
  } else if (value.isNone()) {
    key.push_back('N');
  } else if (value.isInt()) {
    append_bytes(key, 'i', value.toInt());
  } else if (value.isDouble()) {
    append_bytes(key, 'd', value.toDouble());
  } else if (value.isBool()) {
    key.push_back(value.toBool() ? '1' : '0');
  } else if (value.isComplexDouble()) {
    append_bytes(key, 'c', value.toComplexDouble());
  } else if (value.isString()) {
    append_bytes(key, 's', value.toStringRef().size());
    key += value.toStringRef();
  } else if (value.isDevice()) {
    append_bytes(key, 'v', value.toDevice());
  } else if (value.isList()) {
    c10::ArrayRef<c10::IValue> items = value.toListRef();
    append_bytes(key, 'L', items.size());
    for (const c10::IValue& item : items) append_key(key, item);
  } else {
    key.push_back(value.isGenerator() ? 'g' : '?');
  }
}

// Return the key of a call; it is valid until the thread asks for the next one.
inline std::string& argument_key(int64_t op, c10::ArrayRef<const c10::IValue> arguments) {
  static thread_local std::string& key = *new std::string;  // see NOTE [ End of the process ]
  key.clear();
  append_bytes(key, 'o', op);
  for (const c10::IValue& value : arguments) append_key(key, value);
  return key;
}

inline std::string quoted(const std::string& text) {
  std::string found = "\"";
  for (unsigned char each : text) {
    if (each == '"' || each == '\\') {
      found.push_back('\\');
      found.push_back(static_cast<char>(each));
    } else if (each < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof(escaped), "\\u%04x", each);
      found += escaped;
    } else {
      found.push_back(static_cast<char>(each));
    }
  }
  return found + "\"";
}

inline std::string text_of_double(double value) {
  if (std::isnan(value)) return "\"f:nan\"";
  if (std::isinf(value)) return value > 0 ? "\"f:inf\"" : "\"f:-inf\"";
  char text[40];
  for (int digits : {15, 17}) {  // the shorter one if it is the same number
    std::snprintf(text, sizeof(text), "%.*g", digits, value);
    if (std::strtod(text, nullptr) == value) break;
  }
  std::string found = text;
  return found.find_first_of(".e") == std::string::npos ? found + ".0" : found;
}

// Return the name of an enumeration's member, which operators take as a number.
inline std::string text_of_member(c10::TypeKind kind, int64_t value) {
  std::string found;
  if (kind == c10::TypeKind::ScalarTypeType) {
    found = c10::getDtypeNames(static_cast<c10::ScalarType>(value)).first;
  } else if (kind == c10::TypeKind::LayoutType) {
    found = value == 0 ? "strided" : "";
  } else {
    constexpr const char* FORMATS[] = {"contiguous_format", "preserve_format", "channels_last", "channels_last_3d"};
    found = value >= 0 && value < 4 ? FORMATS[value] : "";
  }
  return found.empty() ? "\"?:" + std::to_string(value) + "\"" : "\"torch." + found + "\"";
}

inline c10::TypePtr content_of(const c10::TypePtr& type) {
  auto optional = type->cast<c10::OptionalType>();
  return optional ? optional->getElementType() : type;
}

inline std::string text_of_value(const c10::TypePtr& type, const c10::IValue& value) {
  if (value.isNone()) return "null";
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    if (!tensor.defined()) return "null";
    if (!tensor.unsafeGetTensorImpl()->is_wrapped_number()) return "\"$\"";
    c10::IValue number = number_of(tensor);
    return number.isNone() ? "\"?:number\"" : text_of_value(type, number);
  }
  c10::TypeKind kind = type == nullptr ? c10::TypeKind::AnyType : type->kind();
  bool is_member = kind == c10::TypeKind::ScalarTypeType || kind == c10::TypeKind::LayoutType ||
      kind == c10::TypeKind::MemoryFormatType;
  if (value.isInt()) return is_member ? text_of_member(kind, value.toInt()) : std::to_string(value.toInt());
  if (value.isDouble()) return text_of_double(value.toDouble());
  if (value.isBool()) return value.toBool() ? "true" : "false";
  if (value.isString()) return quoted("s:" + value.toStringRef());
  if (value.isDevice()) return quoted("d:" + value.toDevice().str());
  if (value.isGenerator()) return "\"g:\"";
  if (value.isComplexDouble()) {
    char text[80];
    std::snprintf(text, sizeof(text), "\"c:%.17g,%.17g\"", value.toComplexDouble().real(), value.toComplexDouble().imag());
    return text;
  }
  if (!value.isList()) return quoted("?:" + value.tagKind());
  std::string found = "[";
  for (const c10::IValue& item : value.toListRef())
    found += (found.size() > 1 ? ", " : "") + text_of_value(nullptr, item);
  return found + "]";
}

inline bool is_default(const c10::Argument& argument, const c10::IValue& value) {
  if (!argument.default_value().has_value()) return false;
  std::string given, ordinary;
  append_key(given, value);
  append_key(ordinary, *argument.default_value());
  return given == ordinary && given.find('?') == std::string::npos;
}

inline std::string text_of_arguments(const c10::FunctionSchema& schema, c10::ArrayRef<const c10::IValue> values) {
  std::string found = "{";
  for (size_t i = 0; i < std::min(values.size(), schema.arguments().size()); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    if (is_default(argument, values[i])) continue;
    found += (found.size() > 1 ? ", " : "") + quoted((argument.kwarg_only() ? "*" : "") + argument.name()) + ": " +
        text_of_value(content_of(argument.real_type()), values[i]);
  }
  return found + "}";
}

}  // namespace agv
