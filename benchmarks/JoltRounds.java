import com.bazaarvoice.jolt.Chainr;
import com.bazaarvoice.jolt.JsonUtils;
import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/**
 * Maps the payloads of a file with the Java library, on command. Arguments: the chain's file, the file of payloads,
 * one a line. Each line of the input is "map N" (N times all payloads, parsed before) or "json N" (parsed and written
 * as well); the answer to it is the CPU time of the process, in nanoseconds.
 */
public class JoltRounds {
    private static final OperatingSystemMXBean SYSTEM =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    private static long sink;

    public static void main(String[] arguments) throws Exception {
        Chainr chain = Chainr.fromSpec(JsonUtils.jsonToObject(Files.newInputStream(Path.of(arguments[0]))));
        List<byte[]> lines = new ArrayList<>();
        List<Object> payloads = new ArrayList<>();
        for (String line : Files.readAllLines(Path.of(arguments[1]), StandardCharsets.UTF_8)) {
            byte[] bytes = line.getBytes(StandardCharsets.UTF_8);
            lines.add(bytes);
            payloads.add(JsonUtils.jsonToObject(new ByteArrayInputStream(bytes)));
        }
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            long repeats = Long.parseLong(words[1]);
            long before = SYSTEM.getProcessCpuTime();
            for (long repeat = 0; repeat < repeats; repeat++) {
                if (words[0].equals("map")) {
                    map(chain, payloads);
                } else {
                    mapJson(chain, lines);
                }
            }
            System.out.println(SYSTEM.getProcessCpuTime() - before);
            System.out.flush();
        }
        System.err.println(sink);
    }

    private static void map(Chainr chain, List<Object> payloads) {
        for (Object payload : payloads) {
            Object output = chain.transform(payload);
            sink += output == null ? 0 : 1;
        }
    }

    private static void mapJson(Chainr chain, List<byte[]> lines) {
        for (byte[] line : lines) {
            Object output = chain.transform(JsonUtils.jsonToObject(new ByteArrayInputStream(line)));
            sink += JsonUtils.toJsonString(output).length();
        }
    }
}
