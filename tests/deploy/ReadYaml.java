import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.dataformat.yaml.YAMLFactory;
import com.fasterxml.jackson.dataformat.yaml.YAMLParser;
import io.fabric8.kubernetes.api.model.KubernetesResource;
import io.fabric8.kubernetes.client.utils.KubernetesSerialization;
import java.io.File;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collection;
import java.util.Map;

/**
 * Reads YAML files and prints each document as one line of JSON. With "--typed" first, documents are read into the types of
 * the Kubernetes client as well, and a field that these do not know is an error.
 */
public class ReadYaml {
    static final KubernetesSerialization TYPES = new KubernetesSerialization();

    public static void main(String[] given) throws Exception {
        boolean typed = given[0].equals("--typed");
        for (int number = typed ? 1 : 0; number < given.length; number++) {
            String text = Files.readString(Path.of(given[number]));
            ObjectMapper yaml = new ObjectMapper(new YAMLFactory().enable(YAMLParser.Feature.PARSE_BOOLEAN_LIKE_WORDS_AS_STRINGS));
            yaml.enable(com.fasterxml.jackson.core.StreamReadFeature.STRICT_DUPLICATE_DETECTION.mappedFeature());
            try (var documents = yaml.readerFor(Object.class).readValues(text)) {
                while (documents.hasNext()) {
                    String json = new ObjectMapper().writeValueAsString(documents.next());
                    if (typed) {
                        check(TYPES.unmarshal(json), new File(given[number]).getName());
                    }
                    System.out.println(json);
                }
            }
        }
    }

    static void check(Object value, String place) throws Exception {
        if (value instanceof Collection<?> many) {
            for (Object each : many) {
                check(each, place + "[]");
            }
        } else if (value instanceof Map<?, ?> map) {
            for (var each : map.entrySet()) {
                check(each.getValue(), place + "." + each.getKey());
            }
        } else if (value instanceof KubernetesResource) {
            place += "/" + value.getClass().getSimpleName();
            for (Class<?> type = value.getClass(); type != null; type = type.getSuperclass()) {
                for (Field field : type.getDeclaredFields()) {
                    if (Modifier.isStatic(field.getModifiers())) {
                        continue;
                    }
                    field.setAccessible(true);
                    Object found = field.get(value);
                    if (field.getName().equals("additionalProperties") && !((Map<?, ?>) found).isEmpty()) {
                        throw new IllegalArgumentException(place + ": unknown fields " + ((Map<?, ?>) found).keySet());
                    }
                    check(found, place + "." + field.getName());
                }
            }
        }
    }
}
