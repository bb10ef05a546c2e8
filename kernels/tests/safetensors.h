// Reads float64 tensors of a .safetensors file: eight bytes of header length, a JSON header, the data.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace safetensors {

struct Tensor {
  std::vector<int> shape;
  std::vector<double> values;
};

// A reader for the one form of header that the format allows: {"name":{"dtype":…,"shape":[…],"data_offsets":[…]},…}.
class Header {
 public:
  explicit Header(const std::string &text) : text_(text) {}

  std::map<std::string, Tensor> tensors(const std::vector<char> &data) {
    std::map<std::string, Tensor> out;
    expect('{');
    while (peek() != '}') {
      const std::string name = string();
      expect(':');
      if (name == "__metadata__") {
        skip_object();
      } else {
        out[name] = tensor(data);
      }
      if (peek() == ',') expect(',');
    }
    return out;
  }

 private:
  Tensor tensor(const std::vector<char> &data) {
    Tensor out;
    std::string dtype;
    std::vector<int64_t> shape, offsets;
    expect('{');
    while (peek() != '}') {
      const std::string key = string();
      expect(':');
      if (key == "dtype") dtype = string();
      if (key == "shape") shape = numbers();
      if (key == "data_offsets") offsets = numbers();
      if (peek() == ',') expect(',');
    }
    expect('}');
    if (dtype != "F64" || offsets.size() != 2 || offsets[1] > static_cast<int64_t>(data.size()))
      throw std::runtime_error("a tensor is not F64, or reaches past the file");
    out.shape.assign(shape.begin(), shape.end());
    out.values.resize((offsets[1] - offsets[0]) / sizeof(double));
    std::memcpy(out.values.data(), data.data() + offsets[0], out.values.size() * sizeof(double));
    return out;
  }

  char peek() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    if (at_ == text_.size()) throw std::runtime_error("the header ends early");
    return text_[at_];
  }
  void expect(char wanted) {
    if (peek() != wanted) throw std::runtime_error(std::string("expected ") + wanted + " in the header");
    ++at_;
  }
  std::string string() {
    expect('"');
    const size_t end = text_.find('"', at_);
    if (end == std::string::npos) throw std::runtime_error("a string does not end");
    std::string out = text_.substr(at_, end - at_);
    at_ = end + 1;
    return out;
  }
  std::vector<int64_t> numbers() {
    std::vector<int64_t> out;
    expect('[');
    while (peek() != ']') {
      size_t used = 0;
      out.push_back(std::stoll(text_.substr(at_, 24), &used));
      at_ += used;
      if (peek() == ',') expect(',');
    }
    expect(']');
    return out;
  }
  void skip_object() {
    at_ = text_.find('}', at_);
    expect('}');
  }

  std::string text_;
  size_t at_ = 0;
};

inline std::map<std::string, Tensor> read(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  uint64_t length = 0;
  if (!file.read(reinterpret_cast<char *>(&length), sizeof length)) throw std::runtime_error("cannot read " + path);
  std::string header(length, ' ');
  if (!file.read(&header[0], static_cast<std::streamsize>(length))) throw std::runtime_error("cannot read " + path);
  const std::vector<char> data((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return Header(header).tensors(data);
}

}  // namespace safetensors
