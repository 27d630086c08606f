import com.bazaarvoice.jolt.Chainr;
import com.bazaarvoice.jolt.JsonUtils;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;

/** Reads one JSON object {spec, input, context} a line and prints {"output": ...} or {"error": kind} for each. */
public class JoltOracle {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(JsonUtils.toJsonString(answer(line)));
            if (!in.ready()) {
                out.flush();
            }
        }
        out.flush();
    }

    @SuppressWarnings("unchecked")
    private static Map<String, Object> answer(String line) {
        Map<String, Object> answer = new LinkedHashMap<>();
        Map<String, Object> task = JsonUtils.jsonToMap(line);
        Chainr chain;
        try {
            chain = Chainr.fromSpec(task.get("spec"));
        } catch (Throwable error) {
            answer.put("error", "spec");
            answer.put("detail", String.valueOf(error));
            return answer;
        }
        try {
            Object output = chain.transform(task.get("input"), (Map<String, Object>) task.get("context"));
            answer.put("output", JsonUtils.jsonToObject(JsonUtils.toJsonString(output)));
        } catch (Throwable error) {
            answer.clear();
            answer.put("error", "transform");
            answer.put("detail", String.valueOf(error));
        }
        return answer;
    }
}
