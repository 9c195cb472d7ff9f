// Annotations between the public form and the graph's.
#pragma once

#include "heddle/annotate.h"
#include "ir/attr.h"

namespace heddle::engine {

ir::Annotation to_ir(const AnnotationValue& value);
ir::Annotations to_ir(const AnnotationMap& map);
AnnotationMap from_ir(const ir::Annotations& map);

}  // namespace heddle::engine
